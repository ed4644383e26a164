-- Cycles of stream tables: their members, and whether a cycle is permitted.

CREATE OR REPLACE FUNCTION pgtrickle._cycle_of(id bigint) RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE edge AS MATERIALIZED (
        SELECT d.pgt_id AS reader, st.pgt_id AS source
        FROM pgtrickle.pgt_dependencies AS d
        JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_relid = d.source_relid
    ), above(pgt_id) AS (
        SELECT e.source FROM edge AS e WHERE e.reader = id
        UNION
        SELECT e.source FROM above AS a JOIN edge AS e ON e.reader = a.pgt_id
    ), below(pgt_id) AS (
        SELECT e.reader FROM edge AS e WHERE e.source = id
        UNION
        SELECT e.reader FROM below AS b JOIN edge AS e ON e.source = b.pgt_id
    )
    SELECT coalesce(array_agg(a.pgt_id ORDER BY a.pgt_id), '{}')
    FROM above AS a
    JOIN below AS b ON b.pgt_id = a.pgt_id
$$;
COMMENT ON FUNCTION pgtrickle._cycle_of(bigint) IS
'Internal. The stream tables that read one another in a cycle with this one, itself included; empty when it is in none.';

-- The definitions of a cycle have a least fixpoint only if they are monotone: inserted rows never delete rows of the result. The structure
-- of expressions is not checked here: a subquery under OR or CASE is found when the query is compiled, and stops the tables with the same reason.
CREATE OR REPLACE FUNCTION pgtrickle._monotone_obstacle(probe oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT known.label
    FROM (VALUES
        (1, 'an aggregate or GROUP BY', ':hasAggs true|:groupClause \(|:groupingSets \(|:havingQual \{'),
        (2, 'a window function', ':hasWindowFuncs true'),
        (3, 'DISTINCT ON', ':hasDistinctOn true'),
        (4, 'LIMIT or OFFSET', ':limit(?:Count|Offset) \{'),
        (5, 'an outer join', '\{JOINEXPR :jointype [1-9]'),
        (6, 'EXCEPT', '\{SETOPERATIONSTMT :op 3'),
        (7, 'WITH RECURSIVE', ':hasRecursive true'),
        (8, 'NOT EXISTS or NOT IN', '\{BOOLEXPR :boolop not :args \(\{SUBLINK '),
        (9, 'a subquery that yields a value', '\{SUBLINK :subLinkType [^02]')
    ) AS known(position, label, pattern)
    JOIN pgtrickle._rules(probe) AS r ON r.node_tree ~ known.pattern
    ORDER BY known.position
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._monotone_obstacle(oid) IS
'Internal. Why a query cannot be part of a cycle of stream tables; NULL when its constructs allow it.';

-- Raises if stream tables form a cycle that is not permitted. The definitions of all members are checked, because the other members
-- may not have been in a cycle before.
CREATE OR REPLACE FUNCTION pgtrickle._check_cycle(cycle bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names CONSTANT text := (SELECT string_agg(format('%I.%I', st.pgt_schema, st.pgt_name), ', ' ORDER BY st.pgt_id)
                            FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (cycle));
    member record;
    found text;
BEGIN
    IF lower((SELECT o.value FROM pgtrickle._stored_options() AS o WHERE o.name = 'allow_circular')) NOT IN ('on', 'true', 'yes', '1') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('the query would make stream tables read one another in a cycle: %s', names),
            HINT = 'To allow this: SELECT pgtrickle.set_option(''allow_circular'', ''on'').';
    END IF;
    FOR member IN
        SELECT format('%I.%I', st.pgt_schema, st.pgt_name) AS label, st.defining_query, st.refresh_mode
        FROM pgtrickle.pgt_stream_tables AS st
        WHERE st.pgt_id = ANY (cycle)
        ORDER BY st.pgt_id
    LOOP
        IF member.refresh_mode NOT IN ('AUTO', 'FULL') THEN
            RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
                MESSAGE = format('%s is part of a cycle of stream tables (%s) and cannot be %s', member.label, names, member.refresh_mode),
                HINT = 'Use refresh_mode AUTO or FULL: when a source loses rows, the cycle is computed from scratch.';
        END IF;
        EXECUTE 'CREATE TEMPORARY VIEW __pgt_member AS ' || member.defining_query;
        found := pgtrickle._monotone_obstacle('pg_temp.__pgt_member'::regclass);
        IF found IS NOT NULL THEN
            found := 'uses ' || found || ', so that more rows may mean fewer';
        ELSE
            found := 'cannot be: ' || pgtrickle._reason_text(pgtrickle._full_reason('pg_temp.__pgt_member'::regclass));
        END IF;
        EXECUTE 'DROP VIEW pg_temp.__pgt_member';
        IF found IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
                MESSAGE = format('%s is part of a cycle of stream tables (%s) and %s', member.label, names, found),
                HINT = 'Use a stream table outside the cycle for this, which reads the cycle or is read by it.';
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._check_cycle(bigint[]) IS 'Internal. Raises unless these stream tables may read one another in a cycle.';

-- Stream tables that have joined or left a cycle are maintained in another way from now on.
CREATE OR REPLACE FUNCTION pgtrickle._redo(members bigint[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET definition_version = st.definition_version + 1, needs_reinit = true, epoch = st.epoch + 1,
        reinit_reason_code = 'cycle_changed', reinit_reason_params = '{}', reinit_reason = pgtrickle._reason_text('cycle_changed', '{}'),
        updated_at = clock_timestamp()
    WHERE st.pgt_id = ANY (members);
    SELECT pgtrickle._wake('alter', m) FROM unnest(members) AS m
$$;
COMMENT ON FUNCTION pgtrickle._redo(bigint[]) IS 'Internal. Marks stream tables whose cycle is another one now.';
