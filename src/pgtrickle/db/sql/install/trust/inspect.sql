-- What a query is made of, read from the rewrite rule of a view over it. Views are followed to the bottom.
-- The node trees are searched by regular expressions: names in them are escaped and constants are bytes, so a pattern cannot be forged.
-- What comes out of a function is materialised before it is joined: the planner knows nothing of its size and would call it per row.

CREATE OR REPLACE FUNCTION pgtrickle._reads(probe oid, asker oid DEFAULT NULL)
RETURNS TABLE (via oid, run_as oid, relid oid, relkind "char", is_system bool)
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE reach(via, run_as, relid, author) AS (
        SELECT NULL::oid, coalesce(asker, v.relowner), v.oid, coalesce(asker, v.relowner)
        FROM pg_class AS v
        WHERE v.oid = probe
        UNION
        SELECT v.oid,
               -- What a view reads is read with the rights of its owner. With security_invoker, in any of the ways to write a boolean, it is read with
               -- those of the role that runs the query, also below views without it.
               CASE WHEN v.oid = probe
                         OR EXISTS (SELECT FROM unnest(v.reloptions) AS o WHERE o ~* '^security_invoker=(?:t|tr|tru|true|y|ye|yes|on|1)$')
                    THEN reach.author ELSE v.relowner END,
               m[1]::oid, reach.author
        FROM reach
        JOIN pg_class AS v ON v.oid = reach.relid AND v.relkind = 'v'
        JOIN pg_rewrite AS r ON r.ev_class = v.oid AND r.ev_type = '1'
        CROSS JOIN LATERAL regexp_matches(r.ev_action::text, ':rtekind 0 :relid (\d+)', 'g') AS m
        WHERE m[1]::oid <> v.oid
    )
    SELECT reach.via, reach.run_as, reach.relid, c.relkind, c.oid < 16384
    FROM reach
    JOIN pg_class AS c ON c.oid = reach.relid
    WHERE reach.via IS NOT NULL
$$;
COMMENT ON FUNCTION pgtrickle._reads(oid, oid) IS
'Internal. Every relation that a view reads, directly or through views, with the view that names it and the role whose rights count there. asker: the '
'role that stands for the owner of the view.';

CREATE OR REPLACE FUNCTION pgtrickle._rules(probe oid) RETURNS TABLE (view_oid oid, node_tree text)
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH views AS MATERIALIZED (
        SELECT probe AS relid
        UNION
        SELECT x.relid FROM pgtrickle._reads(probe) AS x WHERE x.relkind = 'v'
    )
    SELECT r.ev_class, r.ev_action::text
    FROM views AS v
    JOIN pg_rewrite AS r ON r.ev_class = v.relid AND r.ev_type = '1'
$$;
COMMENT ON FUNCTION pgtrickle._rules(oid) IS 'Internal. The node trees of a view and of all views below it.';

CREATE OR REPLACE FUNCTION pgtrickle._columns_read(probe oid) RETURNS TABLE (via oid, relid oid, columns int2[])
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH reads AS MATERIALIZED (
        SELECT DISTINCT x.via, x.relid FROM pgtrickle._reads(probe) AS x
    )
    SELECT x.via, x.relid,
           coalesce(array_agg(DISTINCT d.refobjsubid::int2 ORDER BY d.refobjsubid::int2)
                    FILTER (WHERE d.refobjsubid > 0), '{}')
    FROM reads AS x
    JOIN pg_rewrite AS r ON r.ev_class = x.via AND r.ev_type = '1'
    LEFT JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
                            AND d.refclassid = 'pg_class'::regclass AND d.refobjid = x.relid
    GROUP BY x.via, x.relid
$$;
COMMENT ON FUNCTION pgtrickle._columns_read(oid) IS 'Internal. Which columns of each relation a view reads, by the view that names it.';

CREATE OR REPLACE FUNCTION pgtrickle._column_names(relation oid, columns int2[]) RETURNS name[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(a.attname ORDER BY k.i), '{}')
    FROM unnest(columns) WITH ORDINALITY AS k(attnum, i)
    LEFT JOIN pg_attribute AS a ON a.attrelid = relation AND a.attnum = k.attnum AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION pgtrickle._column_names(oid, int2[]) IS 'Internal. The names of columns of a relation, NULL for one that is gone.';

-- No SET search_path, so that it is inlined. The cast of an oid to text uses the current catalog and not the snapshot, as names in statements do.
-- Not format(), which raises for NULL: the names of a source that was dropped before names were stored.
CREATE OR REPLACE FUNCTION pgtrickle._is_renamed(relation oid, schema_name name, relation_name name) RETURNS bool
LANGUAGE sql STABLE AS $$
    SELECT relation::pg_catalog.regclass::pg_catalog.text NOT IN (
        pg_catalog.quote_ident(schema_name) || '.' || pg_catalog.quote_ident(relation_name), pg_catalog.quote_ident(relation_name),
        relation::pg_catalog.text)
$$;
COMMENT ON FUNCTION pgtrickle._is_renamed(oid, name, name) IS 'Internal. Whether a relation has another name than this one; not when it is gone.';

-- The same for a column.
CREATE OR REPLACE FUNCTION pgtrickle._is_renamed(relation oid, attnum int2, schema_name name, relation_name name, column_name name) RETURNS bool
LANGUAGE sql STABLE AS $$
    SELECT (pg_catalog.pg_identify_object('pg_catalog.pg_class'::pg_catalog.regclass, relation, attnum)).identity NOT IN (
        pg_catalog.quote_ident(schema_name) || '.' || pg_catalog.quote_ident(relation_name) || '.' || pg_catalog.quote_ident(column_name),
        pg_catalog.quote_ident(schema_name) || '.' || pg_catalog.quote_ident(relation_name)
            || '."........pg.dropped.' || attnum || '........"')
$$;
COMMENT ON FUNCTION pgtrickle._is_renamed(oid, int2, name, name, name) IS
'Internal. Whether a column of a relation, or the relation, has another name than this one; not when it is gone.';

-- Requires a search_path without schemas of users, as sessions and functions of pgtrickle have it.
CREATE OR REPLACE FUNCTION pgtrickle._name_of(class oid, object oid, part int) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE class
               WHEN 'pg_catalog.pg_class'::pg_catalog.regclass THEN CASE
                   WHEN part = 0 THEN object::pg_catalog.regclass::pg_catalog.text
                   ELSE pg_catalog.substr((pg_catalog.pg_identify_object(class, object, part)).identity,
                                          pg_catalog.length(object::pg_catalog.regclass::pg_catalog.text) + 2) END
               WHEN 'pg_catalog.pg_type'::pg_catalog.regclass THEN pg_catalog.format_type(object, NULL)
               WHEN 'pg_catalog.pg_proc'::pg_catalog.regclass THEN object::pg_catalog.regproc::pg_catalog.text
               WHEN 'pg_catalog.pg_operator'::pg_catalog.regclass THEN object::pg_catalog.regoper::pg_catalog.text
               WHEN 'pg_catalog.pg_collation'::pg_catalog.regclass THEN object::pg_catalog.regcollation::pg_catalog.text
               WHEN 'pg_catalog.pg_ts_config'::pg_catalog.regclass THEN object::pg_catalog.regconfig::pg_catalog.text
               WHEN 'pg_catalog.pg_ts_dict'::pg_catalog.regclass THEN object::pg_catalog.regdictionary::pg_catalog.text
           END
$$;
COMMENT ON FUNCTION pgtrickle._name_of(oid, oid, int) IS
'Internal. What an object, or an attribute (part) of a relation, is called now, whatever the snapshot; its number, ??? or NULL when it is gone.';

CREATE OR REPLACE FUNCTION pgtrickle._is_called_otherwise(class oid, object oid, part int, name text) RETURNS bool
LANGUAGE sql STABLE AS $$
    SELECT pgtrickle._name_of(class, object, part) NOT IN (name, object::pg_catalog.text, '???')
$$;
COMMENT ON FUNCTION pgtrickle._is_called_otherwise(oid, oid, int, text) IS 'Internal. Whether an object has another name than this one; not when it is gone.';

CREATE OR REPLACE FUNCTION pgtrickle._names(probe oid) RETURNS TABLE (classid oid, objid oid, objsubid int, in_text bool)
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH views AS MATERIALIZED (
        SELECT r.view_oid, r.view_oid = probe AS in_text, r.node_tree ~ ':consttype 2205 ' AS has_constants FROM pgtrickle._rules(probe) AS r
    ), constants AS MATERIALIZED (
        SELECT v.in_text, replace(m[1], '''''', '''') AS name
        FROM views AS v
        CROSS JOIN LATERAL regexp_matches(pg_get_viewdef(v.view_oid), '''((?:[^'']|'''')+)''::regclass', 'g') AS m
        WHERE v.has_constants
    ), depends AS MATERIALIZED (
        SELECT d.refclassid, d.refobjid, d.refobjsubid, v.in_text, coalesce(nullif(t.typrelid, 0), e.typrelid) AS row_of
        FROM views AS v
        JOIN pg_rewrite AS r ON r.ev_class = v.view_oid AND r.ev_type = '1'
        JOIN pg_depend AS d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refobjid <> v.view_oid
        LEFT JOIN pg_type AS t ON t.oid = d.refobjid AND d.refclassid = 'pg_type'::regclass
        LEFT JOIN pg_type AS e ON e.oid = t.typelem
        WHERE d.refobjid >= 16384
          AND d.refclassid IN ('pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass, 'pg_operator'::regclass,
                               'pg_collation'::regclass, 'pg_ts_config'::regclass, 'pg_ts_dict'::regclass)
    ), found AS (
        -- The only sign of a constant whose relation is read as well.
        SELECT 'pg_class'::regclass AS classid, c.oid AS objid, 0 AS objsubid, k.in_text
        FROM constants AS k
        JOIN pg_class AS c ON c.oid::regclass::text = k.name
        UNION ALL
        SELECT d.refclassid, d.refobjid, d.refobjsubid, d.in_text
        FROM depends AS d
        WHERE d.refclassid <> 'pg_class'::regclass
           -- in a constant, or an attribute of a value; which it may be, where its row type is named
           OR d.refobjid NOT IN (SELECT x.relid FROM pgtrickle._reads(probe) AS x)
           OR (d.refobjsubid > 0 AND d.refobjid IN (SELECT y.row_of FROM depends AS y))
    )
    SELECT f.classid, f.objid, f.objsubid, bool_or(f.in_text)
    FROM found AS f
    WHERE f.objid >= 16384
    GROUP BY f.classid, f.objid, f.objsubid
$$;
COMMENT ON FUNCTION pgtrickle._names(oid) IS 'Internal. What a query, and the views below it, name besides what they read.';

CREATE OR REPLACE FUNCTION pgtrickle._functions_called(probe oid)
RETURNS TABLE (funcid oid, signature text, kind "char", volatility "char", is_system bool, owner oid, proname name, argtypes oid[])
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH rules AS MATERIALIZED (
        SELECT r.node_tree FROM pgtrickle._rules(probe) AS r
    ), operators AS MATERIALIZED (
        SELECT DISTINCT n::oid AS operator
        FROM rules AS r,
             regexp_matches(r.node_tree, ':opnos \(o ([0-9 ]+)\)', 'g') AS m,
             regexp_split_to_table(m[1], ' ') AS n
    ), called AS MATERIALIZED (
        SELECT m[1]::oid AS funcid
        FROM rules AS r,
             regexp_matches(r.node_tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') AS m
        UNION
        SELECT o.oprcode::oid
        FROM operators AS n
        JOIN pg_operator AS o ON o.oid = n.operator
    ), with_parts AS MATERIALIZED (
        SELECT c.funcid FROM called AS c
        UNION
        -- an aggregate is as volatile as its parts, whatever its own entry says
        SELECT part
        FROM called AS c
        JOIN pg_aggregate AS a ON a.aggfnoid = c.funcid
        CROSS JOIN LATERAL unnest(ARRAY[a.aggtransfn, a.aggfinalfn, a.aggcombinefn]::oid[]) AS part
        WHERE a.aggfnoid >= 16384
    )
    SELECT p.oid, format('%I.%I(%s)', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid)),
           p.prokind, p.provolatile, p.oid < 16384, p.proowner, p.proname, p.proargtypes::oid[]
    FROM with_parts AS w
    JOIN pg_proc AS p ON p.oid = w.funcid
    JOIN pg_namespace AS n ON n.oid = p.pronamespace
$$;
COMMENT ON FUNCTION pgtrickle._functions_called(oid) IS 'Internal. Every function behind a call, operator, cast or aggregate of a query, views included.';

-- Built-in STABLE functions whose result depends on nothing but settings that our sessions pin (DateStyle, IntervalStyle,
-- extra_float_digits) or that belong to the database (TimeZone, locale). Generated from pg_proc of 13 to 18 and then cut by hand:
-- functions that depend on the clock, the session, a catalog or a default configuration are excluded on purpose.
CREATE OR REPLACE FUNCTION pgtrickle._is_steady(proname name, argtypes oid[]) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT proname = ANY ('{anytextcat,textanycat,array_to_string,array_to_json,concat,concat_ws,convert,convert_from,convert_to,
            date,date_add,date_subtract,date_part,date_trunc,extract,format,generate_series,interval_pl_timestamptz,json_build_array,json_build_object,
            jsonb_build_array,jsonb_build_object,length,make_timestamptz,overlaps,quote_literal,quote_nullable,row_to_json,time,timestamp,
            timestamptz,timestamptz_mi_interval,timestamptz_pl_interval,timezone,to_char,to_date,to_json,to_jsonb,to_number,to_timestamp,
            date_cmp_timestamptz,date_eq_timestamptz,date_ge_timestamptz,date_gt_timestamptz,date_le_timestamptz,date_lt_timestamptz,
            date_ne_timestamptz,timestamp_cmp_timestamptz,timestamp_eq_timestamptz,timestamp_ge_timestamptz,timestamp_gt_timestamptz,
            timestamp_le_timestamptz,timestamp_lt_timestamptz,timestamp_ne_timestamptz,timestamptz_cmp_date,timestamptz_cmp_timestamp,
            timestamptz_eq_date,timestamptz_eq_timestamp,timestamptz_ge_date,timestamptz_ge_timestamp,timestamptz_gt_date,
            timestamptz_gt_timestamp,timestamptz_le_date,timestamptz_le_timestamp,timestamptz_lt_date,timestamptz_lt_timestamp,
            timestamptz_ne_date,timestamptz_ne_timestamp}'::name[])
       -- time with time zone takes its offset from today's date
       AND NOT 'timetz'::regtype = ANY (argtypes)
$$;
COMMENT ON FUNCTION pgtrickle._is_steady(name, oid[]) IS 'Internal. Whether a built-in STABLE function gives the same result at every refresh.';

CREATE OR REPLACE FUNCTION pgtrickle._input_is_steady(typid oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- text to date, time and timestamp understands 'now' and 'today'; arrays, ranges and composites of them do as well
    SELECT CASE
               WHEN t.typtype = 'd' THEN pgtrickle._input_is_steady(t.typbasetype)
               WHEN t.typinput = 'array_in'::regproc THEN pgtrickle._input_is_steady(t.typelem)
               WHEN t.typinput IN ('enum_in'::regproc, 'interval_in'::regproc) THEN true
               ELSE p.provolatile = 'i'
           END
    FROM pg_type AS t
    JOIN pg_proc AS p ON p.oid = t.typinput
    WHERE t.oid = typid
$$;
COMMENT ON FUNCTION pgtrickle._input_is_steady(oid) IS 'Internal. Whether reading a type from text gives the same value at every refresh.';

CREATE OR REPLACE FUNCTION pgtrickle._base_type(typid oid) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN t.typtype = 'd' THEN pgtrickle._base_type(t.typbasetype) ELSE t.oid END FROM pg_type AS t WHERE t.oid = typid
$$;
COMMENT ON FUNCTION pgtrickle._base_type(oid) IS 'Internal. A type, looked through domains; NULL when there is none.';

-- Everything that makes a query unusable in any mode: raises, with a hint.
CREATE OR REPLACE FUNCTION pgtrickle._refuse_unusable(probe oid) RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    SELECT format('%I.%I', n.nspname, c.relname) INTO bad
    FROM pgtrickle._reads(probe) AS x
    JOIN pg_class AS c ON c.oid = x.relid AND c.relpersistence = 't'
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = format('the query reads the temporary relation %s', bad),
            HINT = 'A stream table outlives your session; use a permanent table.';
    END IF;
    SELECT format('%I.%I', n.nspname, c.relname) INTO bad
    FROM pgtrickle._reads(probe) AS x
    JOIN pg_class AS c ON c.oid = x.relid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE x.is_system
    ORDER BY 1
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('the query reads the system catalog %s', bad),
            HINT = 'Its changes cannot be captured, and it shows the state of the server and not of a snapshot. Query it when you need it.';
    END IF;
    IF EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ ':hasForUpdate true') THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = 'the query locks rows (FOR UPDATE or FOR SHARE)',
            HINT = 'Remove the locking clause.';
    END IF;
    IF EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ ':hasModifyingCTE true') THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = 'the query modifies data in WITH',
            HINT = 'A defining query may only read.';
    END IF;
    IF EXISTS (SELECT FROM pgtrickle._rules(probe) AS r WHERE r.node_tree ~ '\{TABLESAMPLECLAUSE .*?:repeatable <>') THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = 'TABLESAMPLE without REPEATABLE returns other rows each time',
            HINT = 'Add REPEATABLE (seed).';
    END IF;
    SELECT f.signature INTO bad
    FROM pgtrickle._functions_called(probe) AS f
    WHERE f.volatility = 'v'
    ORDER BY f.signature
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = format('the query calls the volatile function %s', bad),
            HINT = 'Its result differs at every call, so no stored result could be correct. Remove it, or declare your own function STABLE or '
                'IMMUTABLE if it is.';
    END IF;
    SELECT quote_ident(a.attname) INTO bad
    FROM pg_attribute AS a
    WHERE a.attrelid = probe AND a.attnum > 0 AND a.attname ~ '^__pgt_'
    ORDER BY a.attnum
    LIMIT 1;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'reserved_name',
            MESSAGE = format('the query returns a column named %s', bad),
            HINT = 'Names that begin with __pgt_ are reserved; with DISTINCT or UNION over another stream table list its columns instead of *.';
    END IF;
    IF pgtrickle._query_text(probe) IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
            MESSAGE = 'the query groups by two equal columns of GROUPING SETS, CUBE or ROLLUP, which its stored text could not tell apart',
            HINT = 'Write one of the two expressions differently, or move this SELECT with its GROUP BY to a view.';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = probe AND a.attnum > 0) THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_table_definition',
            MESSAGE = 'the query must return at least one column', HINT = 'List columns after SELECT.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgtrickle._refuse_unusable(oid) IS 'Internal. Raises when a query cannot define a stream table in any mode.';

CREATE OR REPLACE FUNCTION pgtrickle._virtual_basis(relation oid, attnum int2) RETURNS SETOF int2
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT DISTINCT d.refobjsubid::int2
    FROM pg_attribute AS a
    JOIN pg_attrdef AS e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
    JOIN pg_depend AS d ON d.classid = 'pg_attrdef'::regclass AND d.objid = e.oid
                       AND d.refclassid = 'pg_class'::regclass AND d.refobjid = a.attrelid AND d.refobjsubid NOT IN (0, a.attnum)
    WHERE a.attrelid = relation AND a.attnum = _virtual_basis.attnum AND a.attgenerated = 'v'
$$;
COMMENT ON FUNCTION pgtrickle._virtual_basis(oid, int2) IS 'Internal. The columns that a virtual generated column is computed from; none for other columns.';

-- Tables that reach below a source: partitions and inheritance children, the source first. A partitioned stream table is one table: only refreshes
-- create its partitions and write to it, by its own name.
CREATE OR REPLACE FUNCTION pgtrickle._family(source oid) RETURNS TABLE (relid oid, relkind "char")
LANGUAGE sql STABLE ROWS 10 SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE family(relid) AS (
        SELECT source
        UNION
        SELECT i.inhrelid
        FROM family AS f
        JOIN pg_inherits AS i ON i.inhparent = f.relid
        WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_relid = f.relid AND st.partition_by IS NOT NULL)
    )
    SELECT c.oid, c.relkind FROM family AS f JOIN pg_class AS c ON c.oid = f.relid
$$;
COMMENT ON FUNCTION pgtrickle._family(oid) IS 'Internal. A table with its partitions and inheritance children of every depth.';

-- Virtual columns use nothing but what is built in (PostgreSQL 18). The expression is printed without its implicit casts, such as the rounding to a scale.
CREATE OR REPLACE FUNCTION pgtrickle._virtual_expression(relation oid, attnum int2) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('(%s)::%s', x.expression, format_type(a.atttypid, a.atttypmod))
    FROM pg_attribute AS a
    JOIN pg_type AS t ON t.oid = a.atttypid
    JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid) AS expression) AS x
    WHERE a.attrelid = relation AND a.attnum = _virtual_expression.attnum
      -- A longer value is an error there, and an explicit cast cuts it off.
      AND NOT (a.atttypmod >= 0 AND a.atttypid IN ('varchar'::regtype, 'bpchar'::regtype, 'bit'::regtype, 'varbit'::regtype))
      -- The column has a collation of its own, which the expression need not have.
      AND (t.typcollation = 0 OR (a.attcollation = t.typcollation AND x.expression !~* 'collate' AND NOT EXISTS (
          SELECT
          FROM pgtrickle._virtual_basis(relation, _virtual_expression.attnum) AS b
          JOIN pg_attribute AS c ON c.attrelid = relation AND c.attnum = b
          WHERE c.attcollation NOT IN (0, 100))))
$$;
COMMENT ON FUNCTION pgtrickle._virtual_expression(oid, int2) IS
'Internal. The expression of a virtual generated column over the columns of its table; NULL where it does not say all that the column is.';

-- A variable has the number of an item of FROM, and how many SELECTs further out that FROM is. What has no name in the catalog has its alias.
CREATE OR REPLACE FUNCTION pgtrickle._variable(tree text, attnums text, OUT relation text, OUT attribute text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH words AS MATERIALIZED (
        SELECT w.*, lead(w.word, 4) OVER (ORDER BY w.i) AS fourth FROM pgtrickle._tree_words(tree) AS w
    ), variable AS MATERIALIZED (
        SELECT w.i, w.depth, regexp_match(substr(tree, w.at::int), '^.*?:varno (\d+) :varattno (-?\d+) .*?:varlevelsup (\d+)') AS m
        FROM words AS w
        WHERE w.word = '{VAR' AND w.fourth ~ ('^:varattno (?:' || attnums || ')$')
        ORDER BY w.i
        LIMIT 1
    ), query AS MATERIALIZED (
        -- Of the nodes that begin before the variable, the last of each depth below its own are those around it.
        SELECT n.i, n.depth
        FROM (SELECT DISTINCT ON (w.depth) w.i, w.depth, w.word
              FROM variable AS v
              JOIN words AS w ON w.i < v.i AND w.depth < v.depth AND w.word ~ '^\{'
              ORDER BY w.depth, w.i DESC) AS n
        WHERE n.word = '{QUERY'
        ORDER BY n.depth DESC
        OFFSET (SELECT v.m[3]::int FROM variable AS v)
        LIMIT 1
    ), item AS MATERIALIZED (
        SELECT substr(tree, w.at::int) AS node
        FROM query AS q
        JOIN words AS w ON w.i > q.i AND w.depth = q.depth + 1 AND w.word IN ('{RTE', '{RANGETBLENTRY')
        ORDER BY w.i
        OFFSET (SELECT v.m[1]::int - 1 FROM variable AS v)
        LIMIT 1
    ), named AS (
        SELECT substring(node FROM '^.*?:aliasname ((?:\\.|[^\\ ])+) ') AS alias,
               substring(substring(node FROM '^.*?:rtekind (\d+? \S+? \S+?) ') FROM '^0 :relid (\d+)$')::oid AS relid
        FROM item
    )
    SELECT coalesce(n.relid::regclass::text, quote_ident(regexp_replace(n.alias, '\\(.)', '\1', 'g'))),
           (SELECT quote_ident(a.attname) FROM pg_attribute AS a, variable AS v WHERE a.attrelid = n.relid AND a.attnum = v.m[2]::int)
    FROM named AS n
$$;
COMMENT ON FUNCTION pgtrickle._variable(text, text) IS
'Internal. What the first variable of a parse tree reads whose attribute number matches a pattern: the relation, and the column if it has a name.';

-- The only list of what differential refreshes do not support. NULL: the query can be refreshed differentially.
CREATE OR REPLACE FUNCTION pgtrickle._full_reason(probe oid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    tree text;
    found jsonb;
BEGIN
    -- 1. sources whose changes cannot be captured
    SELECT pgtrickle._reason(CASE WHEN x.is_system THEN 'system_catalog'
                                  WHEN x.relkind = 'm' THEN 'materialized_view'
                                  WHEN x.relkind = 'f' THEN 'foreign_table'
                                  WHEN x.relkind = 'S' THEN 'sequence'
                                  ELSE 'unlogged_table' END, 'relation', format('%I.%I', n.nspname, c.relname))
    INTO found
    FROM pgtrickle._reads(probe) AS x
    JOIN pg_class AS c ON c.oid = x.relid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE x.is_system OR x.relkind NOT IN ('r', 'p', 'v') OR c.relpersistence = 'u'
    ORDER BY n.nspname, c.relname
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    IF NOT EXISTS (SELECT FROM pgtrickle._reads(probe) AS x WHERE x.relkind IN ('r', 'p')) THEN
        RETURN pgtrickle._reason('no_table');
    END IF;
    SELECT pgtrickle._reason(CASE c.relpersistence WHEN 'u' THEN 'unlogged_child' ELSE 'foreign_child' END,
                             'child', f.relid::regclass::text, 'relation', x.relid::regclass::text)
    INTO found
    FROM pgtrickle._reads(probe) AS x
    CROSS JOIN LATERAL pgtrickle._family(x.relid) AS f
    JOIN pg_class AS c ON c.oid = f.relid
    WHERE x.relkind IN ('r', 'p') AND (f.relkind = 'f' OR c.relpersistence = 'u')
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    SELECT CASE WHEN a.attgenerated = 'v'
                    THEN pgtrickle._reason('virtual_column', 'column', quote_ident(a.attname), 'relation', x.relid::regclass::text)
                WHEN NOT l.collisdeterministic
                    THEN pgtrickle._reason('loose_column', 'column', quote_ident(a.attname), 'relation', x.relid::regclass::text)
                ELSE pgtrickle._reason('catalog_type', 'column', quote_ident(a.attname), 'relation', x.relid::regclass::text,
                                       'type', a.atttypid::regtype::text) END
    INTO found
    FROM pgtrickle._columns_read(probe) AS x
    JOIN pg_class AS c ON c.oid = x.relid AND c.relkind IN ('r', 'p')
    JOIN pg_attribute AS a ON a.attrelid = x.relid AND a.attnum = ANY (x.columns)
    LEFT JOIN pg_collation AS l ON l.oid = a.attcollation
    WHERE (a.attgenerated = 'v' AND pgtrickle._virtual_expression(a.attrelid, a.attnum) IS NULL)
       OR NOT l.collisdeterministic
       OR a.atttypid IN (SELECT t.oid FROM pg_type AS t WHERE t.oid < 16384 AND t.typname ~ '^reg')
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;

    -- also a collation that only an expression has: GROUP BY name COLLATE loose
    SELECT pgtrickle._reason('loose_collation', 'collation', quote_ident(l.collname)) INTO found
    FROM pg_collation AS l
    JOIN pgtrickle._rules(probe) AS r ON r.node_tree ~ ('coll[a-zA-Z]* ' || l.oid || '\M')
    WHERE NOT l.collisdeterministic
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;

    -- 2. constructs, in any query block of the query, its CTEs, subqueries and views
    FOR tree IN SELECT r.node_tree FROM pgtrickle._rules(probe) AS r LOOP
        IF tree ~ '\{TABLESAMPLECLAUSE ' THEN
            RETURN pgtrickle._reason('tablesample', 'relation',
                                     substring(tree FROM ':rtekind 0 :relid (\d+) [^{}]*:tablesample \{')::oid::regclass::text);
        ELSIF tree ~ '\{VAR :varno \d+ :varattno 0 ' THEN
            RETURN pgtrickle._reason('whole_row', 'relation', (SELECT v.relation FROM pgtrickle._variable(tree, '0') AS v));
        ELSIF tree ~ '\{VAR :varno \d+ :varattno -' THEN
            SELECT pgtrickle._reason('system_column', 'column', v.attribute, 'relation', v.relation) INTO found
            FROM pgtrickle._variable(tree, '-\d+') AS v;
            RETURN found;
        ELSIF tree ~ '\{SQLVALUEFUNCTION ' THEN
            -- in the order of SQLValueFunctionOp, those with and without a precision
            RETURN pgtrickle._reason('session_value', 'function', ('{CURRENT_DATE,CURRENT_TIME,CURRENT_TIME,CURRENT_TIMESTAMP,CURRENT_TIMESTAMP,LOCALTIME,'
                'LOCALTIME,LOCALTIMESTAMP,LOCALTIMESTAMP,CURRENT_ROLE,CURRENT_USER,USER,SESSION_USER,CURRENT_CATALOG,CURRENT_SCHEMA}'::text[])
                [1 + substring(tree FROM '\{SQLVALUEFUNCTION :op (\d+) ')::int]);
        ELSIF tree ~ '\{XMLEXPR ' THEN
            -- in the order of XmlExprOp
            RETURN pgtrickle._reason('xml_expression', 'function', ('{XMLCONCAT,XMLELEMENT,XMLFOREST,XMLPARSE,XMLPI,XMLROOT,XMLSERIALIZE,IS DOCUMENT}'::text[])
                [1 + substring(tree FROM '\{XMLEXPR :op (\d+) ')::int]);
        END IF;
        IF tree ~ '\{GROUPINGSET :kind [1-4]' AND EXISTS (SELECT FROM pgtrickle._equal_columns(tree)) THEN
            RETURN pgtrickle._reason('equal_grouping_keys');
        END IF;
        -- FROM ONLY, where there is something to leave out
        SELECT pgtrickle._reason('from_only', 'relation', m[1]::oid::regclass::text) INTO found
        FROM regexp_split_to_table(tree, '\{(?:RTE|RANGETBLENTRY) ') AS rte,
             regexp_matches(rte, ':rtekind 0 :relid (\d+)') AS m
        WHERE rte ~ ':relkind [rp]' AND (regexp_match(rte, ':inh (true|false)'))[1] = 'false'
          AND EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = m[1]::oid)
        LIMIT 1;
        IF found IS NOT NULL THEN
            RETURN found;
        END IF;
    END LOOP;

    -- 3. results that can change while no source does
    SELECT pgtrickle._reason('stable_function', 'function', f.signature) INTO found
    FROM pgtrickle._functions_called(probe) AS f
    WHERE f.volatility = 's' AND f.kind <> 'a'
      AND NOT (f.is_system AND (pgtrickle._is_steady(f.proname, f.argtypes)
                                OR f.proname IN ('json_to_record', 'json_to_recordset', 'jsonb_to_record', 'jsonb_to_recordset')))
    ORDER BY f.signature
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    SELECT pgtrickle._reason('text_reads_clock', 'type', m[1]::oid::regtype::text) INTO found
    FROM (SELECT DISTINCT n.m
          FROM pgtrickle._rules(probe) AS r, regexp_matches(r.node_tree, ':resulttype (\d+) :resultcollid', 'g') AS n(m)
          OFFSET 0) AS casts
    WHERE NOT pgtrickle._input_is_steady(m[1]::oid)
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    SELECT pgtrickle._reason('json_reads_clock', 'type', m[1]::oid::regtype::text) INTO found
    FROM (SELECT DISTINCT n.m
          FROM pgtrickle._rules(probe) AS r, regexp_matches(r.node_tree, '\{JSONRETURNING :format \{[^}]*\} :typid (\d+)', 'g') AS n(m)
          UNION
          -- json_to_recordset() and the like read the types of their column list
          SELECT ARRAY[t]
          FROM pgtrickle._rules(probe) AS r, regexp_matches(r.node_tree, ':funccoltypes \(o ([0-9 ]+)\)', 'g') AS n(m),
               regexp_split_to_table(n.m[1], ' ') AS t
          WHERE EXISTS (SELECT FROM pgtrickle._functions_called(probe) AS f
                        WHERE f.is_system AND f.proname IN ('json_to_record', 'json_to_recordset', 'jsonb_to_record', 'jsonb_to_recordset'))
          OFFSET 0) AS returned
    WHERE NOT pgtrickle._input_is_steady(m[1]::oid)
    LIMIT 1;
    IF found IS NOT NULL THEN
        RETURN found;
    END IF;
    -- JSON_VALUE and the like compare times in the time zone of the session, unlike jsonb_path_query(). Paths are binary in the tree.
    IF EXISTS (SELECT
               FROM pgtrickle._rules(probe) AS r
               WHERE r.node_tree ~ ':path_spec \{(?!CONST )'
                  OR (r.node_tree ~ '\{JSONEXPR ' AND pg_get_viewdef(r.view_oid) ~* '\.\s*(?:datetime|date|time|time_tz|timestamp|timestamp_tz)\s*\(')) THEN
        RETURN pgtrickle._reason('json_path');
    END IF;
    -- PostgreSQL 18.6: of NULL they give the default if the row before has needed it. In JSON_TABLE they never see NULL. 3: TRUE, 4: FALSE, 8: DEFAULT.
    IF EXISTS (SELECT
               FROM pgtrickle._rules(probe) AS r
               WHERE r.node_tree ~ '\{JSONEXPR :op [012] :column_name <> '
                 AND (r.node_tree ~ ':on_(?:error|empty) \{JSONBEHAVIOR :btype [38] '
                      OR (r.node_tree ~ ':on_error \{JSONBEHAVIOR :btype 4 ' AND pg_get_viewdef(r.view_oid) ~* '''strict\s'))) THEN
        RETURN pgtrickle._reason('json_default');
    END IF;
    SELECT pgtrickle._reason('loose_comparison', 'collation', quote_ident(l.collname)) INTO found
    FROM (SELECT DISTINCT n.m
          FROM pgtrickle._rules(probe) AS r, regexp_matches(r.node_tree, ':(?:collOid|inputcollid) (\d+)', 'g') AS n(m)
          OFFSET 0) AS used
    JOIN pg_collation AS l ON l.oid = used.m[1]::oid AND NOT l.collisdeterministic
    LIMIT 1;
    RETURN found;
END
$$;
COMMENT ON FUNCTION pgtrickle._full_reason(oid) IS
'Internal. Why a query cannot be maintained from changes, as a reason; NULL when it can. AUTO stores this as the reason for FULL, DIFFERENTIAL raises it.';

-- Whether a refresh may read the old state of a table: then captured changes include the columns of a key, by which its rows are found.
CREATE OR REPLACE FUNCTION pgtrickle._looks_back(probe oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT bool_or(r.node_tree ~ concat_ws('|', ':has(?:WindowFuncs|SubLinks|DistinctOn|Recursive) true', '\{JOINEXPR :jointype [1-9]',
                                           ':limit(?:Count|Offset) \{', '\{SETOPERATIONSTMT :op [^1]', ':lateral true'))
           OR sum((SELECT greatest(count(*) FILTER (WHERE m[1] ~ '^:has'), count(*) FILTER (WHERE m[1] ~ '^:gro'))
                          + count(*) FILTER (WHERE m[1] ~ '^:(dis|op)')
                   FROM regexp_matches(r.node_tree, '(:hasAggs true|:groupClause \(|:distinctClause \(|:op 1 :all false)', 'g') AS m)) > 1
    FROM pgtrickle._rules(probe) AS r
$$;
COMMENT ON FUNCTION pgtrickle._looks_back(oid) IS 'Internal. Whether maintaining a query may read its tables as they were.';

-- What the owner of the query may see; raises for the first relation or function that the owner of the probe may not use.
CREATE OR REPLACE FUNCTION pgtrickle._check_rights(probe oid, keeper oid, asker oid DEFAULT NULL, mirrors oid[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    bad record;
BEGIN
    IF asker IS NULL THEN
        SELECT c.relowner INTO asker FROM pg_class AS c WHERE c.oid = probe;
    END IF;
    SELECT format('%I.%I', n.nspname, c.relname) AS relation, pg_get_userbyid(x.run_as) AS reader INTO bad
    FROM pgtrickle._reads(probe, asker) AS x
    JOIN pg_class AS c ON c.oid = x.relid
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pgtrickle._columns_read(probe) AS u ON u.via = x.via AND u.relid = x.relid
    WHERE x.relid <> ALL (mirrors) AND (NOT (has_table_privilege(x.run_as, x.relid, 'SELECT')
               OR (has_any_column_privilege(x.run_as, x.relid, 'SELECT')
                   AND NOT EXISTS (SELECT FROM unnest(u.columns) AS a
                                   WHERE NOT has_column_privilege(x.run_as, x.relid, a, 'SELECT'))))
       OR (x.via = probe AND NOT has_schema_privilege(x.run_as, c.relnamespace, 'USAGE')))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('permission denied for %s', bad.relation),
            HINT = format('GRANT SELECT ON %s TO %I', bad.relation, bad.reader);
    END IF;
    SELECT f.signature INTO bad
    FROM pgtrickle._functions_called(probe) AS f
    WHERE NOT has_function_privilege(asker, f.funcid, 'EXECUTE')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('permission denied for function %s', bad.signature),
            HINT = format('GRANT EXECUTE ON FUNCTION %s TO %I', bad.signature, pg_get_userbyid(asker));
    END IF;

    -- row security: the stored rows would be those of another role
    SELECT format('%I.%I', n.nspname, c.relname) AS relation, pg_get_userbyid(who.role) AS reader INTO bad
    FROM pgtrickle._reads(probe, asker) AS x
    JOIN pg_class AS c ON c.oid = x.relid AND c.relrowsecurity
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL (VALUES (x.run_as), (keeper)) AS who(role)
    JOIN pg_roles AS r ON r.oid = who.role
    WHERE NOT r.rolsuper AND NOT r.rolbypassrls
      AND (c.relforcerowsecurity OR NOT pg_has_role(who.role, c.relowner, 'USAGE'))
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('row security of %s is active for %I', bad.relation, bad.reader),
            HINT = 'A stream table stores one result for all its readers, so it cannot follow row security; define it as the table''s owner.';
    END IF;

    -- capture needs ownership (ENABLE REPLICA TRIGGER)
    SELECT format('%I.%I', n.nspname, c.relname) AS relation, pg_get_userbyid(c.relowner) AS owner_name, o.rolsuper AS is_super INTO bad
    FROM pgtrickle._reads(probe, asker) AS x
    JOIN pg_class AS c ON c.oid = x.relid AND NOT x.is_system
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    JOIN pg_roles AS o ON o.oid = c.relowner
    JOIN pg_roles AS k ON k.oid = keeper
    -- a member of a superuser could do all that a superuser can
    WHERE (NOT pg_has_role(keeper, c.relowner, 'USAGE') OR (o.rolsuper AND NOT k.rolsuper))
      AND NOT (o.rolsuper AND c.relkind = 'v')
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = CASE WHEN bad.is_super THEN format('%s is owned by superuser %I, whose tables are not captured', bad.relation, bad.owner_name)
                           ELSE format('%s is not owned by %I, the role that installed pgtrickle', bad.relation, pg_get_userbyid(keeper)) END,
            HINT = CASE WHEN bad.is_super THEN format('ALTER TABLE %s OWNER TO a role that is no superuser, and GRANT that role TO %I.', bad.relation,
                pg_get_userbyid(keeper))
                        ELSE format('GRANT %I TO %I', bad.owner_name, pg_get_userbyid(keeper)) END;
    END IF;
    -- what the query calls: _who_evaluates
END
$$;
COMMENT ON FUNCTION pgtrickle._check_rights(oid, oid, oid, oid[]) IS
'Internal. Raises unless the owner of a view (or asker, who stands for it) may read all of it and the role that keeps stream tables may capture it. '
'mirrors: relations whose rights were checked where they come from.';

CREATE OR REPLACE FUNCTION pgtrickle._remote_user(server oid, who oid, OUT mapping oid, OUT login text[])
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.umid, ARRAY(SELECT o.option_value FROM pg_options_to_table(m.umoptions) AS o WHERE o.option_name IN ('user', 'password') ORDER BY o.option_name)
    FROM pg_user_mappings AS m
    WHERE m.srvid = server AND m.umuser IN (who, 0)
    ORDER BY m.umuser DESC
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._remote_user(oid, oid) IS
'Internal. The user mapping of a role for a foreign server, its password and the user that it names, as far as they are ours to read.';

-- Refreshes read with the rights of the keeper, so also with its user mapping.
CREATE OR REPLACE FUNCTION pgtrickle._read_as_another(probe oid, asker oid, keeper oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('%s is read at its server as the user that is mapped for %I, not as that for %I', f.relid::regclass, pg_get_userbyid(keeper),
                  pg_get_userbyid(x.run_as))
    FROM pgtrickle._reads(probe, asker) AS x
    CROSS JOIN LATERAL pgtrickle._family(x.relid) AS f
    JOIN pg_foreign_table AS t ON t.ftrelid = f.relid
    CROSS JOIN LATERAL pgtrickle._remote_user(t.ftserver, x.run_as) AS theirs
    CROSS JOIN LATERAL pgtrickle._remote_user(t.ftserver, keeper) AS ours
    WHERE NOT pg_has_role(x.run_as, keeper, 'MEMBER')
      AND theirs.mapping IS DISTINCT FROM ours.mapping
      -- the owner of a mapping can name any user: the password is the proof
      AND NOT coalesce(cardinality(theirs.login) = 2 AND theirs.login = ours.login, false)
    LIMIT 1
$$;
COMMENT ON FUNCTION pgtrickle._read_as_another(oid, oid, oid) IS
'Internal. The first foreign table of a query that refreshes would read as another user than the query of the role would; NULL when there is none. '
'asker NULL: the owner of the probe.';

-- Not those of DISTINCT, GROUP BY, ORDER BY and set operations, which go by the types of what they compare.
CREATE OR REPLACE FUNCTION pgtrickle._operators(probe oid) RETURNS oid[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(o.operator ORDER BY o.operator), '{}')
    FROM (
        SELECT n::oid AS operator
        FROM pg_rewrite AS r,
             regexp_matches(r.ev_action::text, ':opnos? (?:\(o ([0-9 ]+)\)|(\d+))', 'g') AS m,
             regexp_split_to_table(coalesce(m[1], m[2]), ' ') AS n
        WHERE r.ev_class = probe AND r.ev_type = '1'
    ) AS o
$$;
COMMENT ON FUNCTION pgtrickle._operators(oid) IS
'Internal. The operators of a view''s own query that were looked up by name, one entry per use, sorted; not those of views below it.';

CREATE OR REPLACE FUNCTION pgtrickle._means_otherwise(st pgtrickle.pgt_stream_tables, probe oid, settings jsonb) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- A path that finds the same is as good. Of a definition from before these were kept nothing is known.
    SELECT st.session_settings <> '{}'
       AND ((st.session_settings - 'search_path') <> (settings - 'search_path') OR st.operators <> pgtrickle._operators(probe))
$$;
COMMENT ON FUNCTION pgtrickle._means_otherwise(pgtrickle.pgt_stream_tables, oid, jsonb) IS
'Internal. Whether the same text has other operators in this session than the definition has, or is evaluated with other settings.';

-- Casts to and from text, and functions that make text of any value: all of these are STABLE, or have such a part.
CREATE OR REPLACE FUNCTION pgtrickle._makes_texts(probe oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pgtrickle._rules(probe) AS r
                   WHERE r.node_tree ~ '\{(?:COERCEVIAIO|ARRAYCOERCEEXPR|XMLEXPR|JSONCONSTRUCTOREXPR|JSONEXPR) ')
        OR EXISTS (SELECT FROM pgtrickle._functions_called(probe) AS f
                   WHERE NOT f.is_system OR f.volatility <> 'i' OR f.proname ~ '^(?:jsonb?_|to_jsonb?|xml|array_to_|row_to_|quote_)')
$$;
COMMENT ON FUNCTION pgtrickle._makes_texts(oid) IS 'Internal. Whether a query may show in which format dates, intervals, floats and bytes are written.';
