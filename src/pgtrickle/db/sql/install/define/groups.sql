-- Refresh groups: stream tables that a user declared to be refreshed together.

CREATE OR REPLACE FUNCTION pgtrickle._create_group(group_name text, ids bigint[], isolation text, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id bigint;
    taken record;
BEGIN
    -- in the order of ids, so that two sessions cannot deadlock; the second one sees the group of the first
    FOR id IN SELECT u.id FROM unnest(ids) AS u(id) ORDER BY u.id LOOP
        PERFORM pgtrickle._authorize(id, me);
    END LOOP;
    SELECT format('%I.%I', st.pgt_schema, st.pgt_name) AS member, g.group_name INTO taken
    FROM pgtrickle.pgt_refresh_groups AS g
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = ANY (g.members)
    WHERE st.pgt_id = ANY (ids)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'object_in_use',
            MESSAGE = format('%s is already in refresh group %s', taken.member, quote_literal(taken.group_name)),
            HINT = 'A stream table is in one group at most. Drop that group first, or create one with all members.';
    END IF;
    INSERT INTO pgtrickle.pgt_refresh_groups (group_name, isolation, members, created_by)
    VALUES (_create_group.group_name, _create_group.isolation, ids, pgtrickle._caller(me));
    PERFORM pgtrickle._wake('group');
EXCEPTION WHEN unique_violation THEN
    RAISE EXCEPTION USING ERRCODE = 'duplicate_object',
        MESSAGE = format('refresh group %s already exists', quote_literal(group_name)), HINT = 'Drop it first, or choose another name.';
END
$$;
COMMENT ON FUNCTION pgtrickle._create_group(text, bigint[], text, text) IS 'Internal. Stores a refresh group; raises unless the caller may alter every member.';

-- No SET search_path: names of members are resolved along the caller's.
CREATE OR REPLACE FUNCTION pgtrickle.create_refresh_group(group_name text, members text[], isolation text DEFAULT 'read_committed') RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    ids bigint[];
    wanted CONSTANT text := pg_catalog.replace(pg_catalog.lower(pg_catalog.btrim(isolation)), ' ', '_');
BEGIN
    PERFORM pgtrickle._require_primary();
    IF group_name IS NULL OR group_name ~ '^\s*$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_name', MESSAGE = 'a refresh group needs a name', HINT = 'Any text that is not empty.';
    END IF;
    IF wanted IS NULL OR wanted NOT IN ('read_committed', 'repeatable_read') THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = pg_catalog.format('%s is not an isolation', coalesce(pg_catalog.quote_literal(isolation), 'NULL')),
            HINT = 'Use one of read_committed, repeatable_read.';
    END IF;
    SELECT pg_catalog.array_agg(f.id ORDER BY f.position) INTO ids
    FROM (SELECT pgtrickle._find(m.name) AS id, pg_catalog.min(m.position) AS position
          FROM pg_catalog.unnest(members) WITH ORDINALITY AS m(name, position)
          GROUP BY 1) AS f;
    IF coalesce(pg_catalog.cardinality(ids), 0) < 2 THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = pg_catalog.format('refresh group %s needs two different members at least', pg_catalog.quote_literal(group_name)),
            HINT = 'A single stream table is always refreshed at one snapshot.';
    END IF;
    PERFORM pgtrickle._create_group(group_name, ids, wanted);
END
$$;
COMMENT ON FUNCTION pgtrickle.create_refresh_group(text, text[], text) IS
'Stream tables that are refreshed together, in one unit. isolation: read_committed, or repeatable_read to read the sources of all of them at one '
'snapshot. The caller must be the creator of each; a stream table is in one group at most.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_group(group_name text, me text DEFAULT pgtrickle._me()) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    creator name;
BEGIN
    PERFORM pgtrickle._require_primary();
    SELECT pgtrickle._author(g.created_by, g.created_key) INTO creator FROM pgtrickle.pgt_refresh_groups AS g
        WHERE g.group_name = _drop_group.group_name FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object',
            MESSAGE = format('refresh group %s does not exist', coalesce(quote_literal(group_name), 'NULL')),
            HINT = 'SELECT group_name FROM pgtrickle.refresh_groups() lists them.';
    END IF;
    IF NOT pg_has_role(pgtrickle._caller(me), current_user, 'USAGE')
       AND NOT coalesce((SELECT pg_has_role(pgtrickle._caller(me), r.oid, 'USAGE') FROM pg_roles AS r WHERE r.rolname = creator), false) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
            MESSAGE = format('must be the creator of refresh group %s', quote_literal(group_name)),
            HINT = coalesce('It was created by ' || quote_ident(creator) || '.', 'The role that created it is gone.');
    END IF;
    DELETE FROM pgtrickle.pgt_refresh_groups AS g WHERE g.group_name = _drop_group.group_name;
    PERFORM pgtrickle._wake('group');
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_group(text, text) IS 'Internal. What drop_refresh_group() does.';

CREATE OR REPLACE FUNCTION pgtrickle.drop_refresh_group(group_name text) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT pgtrickle._drop_group(group_name)
$$;
COMMENT ON FUNCTION pgtrickle.drop_refresh_group(text) IS 'Dissolves a refresh group; its stream tables stay and are refreshed each for itself.';

CREATE OR REPLACE FUNCTION pgtrickle._leave_groups(id bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    DELETE FROM pgtrickle.pgt_refresh_groups AS g WHERE g.members <@ ARRAY[id];
    UPDATE pgtrickle.pgt_refresh_groups AS g SET members = array_remove(g.members, id) WHERE id = ANY (g.members)
$$;
COMMENT ON FUNCTION pgtrickle._leave_groups(bigint) IS 'Internal. Takes a dropped stream table out of its refresh group; the last one takes the group along.';

CREATE OR REPLACE FUNCTION pgtrickle.refresh_groups()
RETURNS TABLE (group_name text, isolation text, member_count int, members text[], created_by name, created_at timestamptz)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT g.group_name, g.isolation, cardinality(g.members),
           (SELECT array_agg(format('%I.%I', st.pgt_schema, st.pgt_name) ORDER BY u.position)
            FROM unnest(g.members) WITH ORDINALITY AS u(id, position)
            JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.id),
           g.created_by, g.created_at
    FROM pgtrickle.pgt_refresh_groups AS g
    ORDER BY g.group_name
$$;
COMMENT ON FUNCTION pgtrickle.refresh_groups() IS 'Refresh groups and their members, in the order in which they were given.';
