-- A database that was restored from a dump, cloned or upgraded by pg_upgrade: the oids in the catalog are those of another database. Storage tables are
-- found again by name, each query is parsed again, and everything is loaded again. Only the control plane calls these: define/restored.py.

CREATE OR REPLACE FUNCTION pgtrickle._storage_by_name(schema_name name, table_name name) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- Of the same owner as the catalog: a table of another role that has the name is not the storage.
    SELECT c.oid
    FROM pg_class AS c
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = schema_name AND c.relname = table_name AND c.relkind IN ('r', 'p') AND c.relowner = pgtrickle._keeper()
      AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = '__pgt_row_id' AND NOT a.attisdropped)
$$;
COMMENT ON FUNCTION pgtrickle._storage_by_name(name, name) IS 'Internal. The storage table of a stream table by its name; NULL when there is none.';

CREATE OR REPLACE FUNCTION pgtrickle._restored() RETURNS bigint[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(st.pgt_id ORDER BY st.pgt_id), '{}')
    FROM pgtrickle.pgt_stream_tables AS st
    WHERE st.defined_in IS DISTINCT FROM (SELECT pgtrickle._place())
       OR (NOT EXISTS (SELECT FROM pg_class AS c WHERE c.oid = st.pgt_relid)
           AND pgtrickle._storage_by_name(st.pgt_schema, st.pgt_name) IS NOT NULL)
$$;
COMMENT ON FUNCTION pgtrickle._restored() IS
'Internal. Stream tables whose oids in the catalog are those of another database, or whose storage was dropped and restored.';

CREATE OR REPLACE FUNCTION pgtrickle._is_whole() RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT FROM pg_constraint AS c WHERE c.conrelid = 'pgtrickle.pgt_dependencies'::regclass AND c.contype = 'f')
       AND EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = 'pgtrickle.pgt_stream_tables'::regclass AND t.tgname = 'note_creator')
$$;
COMMENT ON FUNCTION pgtrickle._is_whole() IS
'Internal. Whether the catalog has its foreign keys and triggers. pg_restore creates these when all rows are there: until then a restore is at work.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_stray_capture() RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    stray text;
BEGIN
    -- Triggers that came along call functions for the oids of the other database. A clone has the same oids: its capture stays.
    FOR stray IN
        SELECT substr(p.proname, 9)
        FROM pg_proc AS p
        WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace AND p.proname ~ '^capture_[0-9]+$'
          AND NOT EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgfoid = p.oid AND t.tgrelid = substr(p.proname, 9)::oid)
    LOOP
        EXECUTE format('DROP FUNCTION pgtrickle_changes.capture_%s() CASCADE', stray);
        EXECUTE format('DROP TABLE IF EXISTS pgtrickle_changes.changes_%s', stray);
    END LOOP;
    DELETE FROM pgtrickle.pgt_sources AS s
    WHERE NOT EXISTS (SELECT FROM pg_proc AS p
                      WHERE p.pronamespace = 'pgtrickle_changes'::regnamespace AND p.proname = 'capture_' || s.source_relid);
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_stray_capture() IS 'Internal. Removes capture that was restored from a dump: it is for oids of another database.';

CREATE OR REPLACE FUNCTION pgtrickle._rebind() RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    place CONSTANT text := pgtrickle._place();
    -- Those with a question mark are bound, and their queries could not be evaluated yet.
    ids CONSTANT bigint[] := ARRAY(SELECT st.pgt_id FROM pgtrickle.pgt_stream_tables AS st
                                   WHERE st.pgt_id = ANY (pgtrickle._restored()) AND st.defined_in IS DISTINCT FROM place || '?');
    is_elsewhere CONSTANT bool := EXISTS (SELECT FROM pgtrickle.pgt_stream_tables AS st
                                          WHERE st.pgt_id = ANY (ids) AND st.defined_in IS DISTINCT FROM place);
BEGIN
    IF ids = '{}' THEN
        RETURN ids;
    END IF;
    PERFORM FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (ids) ORDER BY st.pgt_id FOR UPDATE;
    PERFORM pgtrickle._drop_stray_capture();
    -- In two steps: the new oid of one may be the old one of another. The highest oids are free.
    UPDATE pgtrickle.pgt_stream_tables AS st SET pgt_relid = (4294967295 - st.pgt_id)::oid WHERE st.pgt_id = ANY (ids);
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET pgt_relid = coalesce(pgtrickle._storage_by_name(st.pgt_schema, st.pgt_name), st.pgt_relid),
        plan = NULL, frontier = NULL, epoch = st.epoch + 1, needs_reinit = true,
        reinit_reason_code = 'other_database', reinit_reason_params = '{}', reinit_reason = pgtrickle._reason_text('other_database', '{}'),
        status = CASE st.status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'INITIALIZING' END,
        consecutive_errors = 0, last_error_code = NULL, last_error_message = NULL,
        -- The oid of the role may be that of another one here; the trigger stores the present one.
        created_by = coalesce(pgtrickle._author(st.created_by, st.created_key), st.created_by),
        defined_in = CASE WHEN m.pgt_id IS NOT NULL THEN place ELSE place || '?' END,
        updated_at = clock_timestamp()
    FROM pgtrickle.pgt_stream_tables AS t
    LEFT JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = t.pgt_id
    WHERE st.pgt_id = t.pgt_id AND t.pgt_id = ANY (ids);
    IF is_elsewhere THEN
        UPDATE pgtrickle.pgt_mirrors AS m SET local_relid = to_regclass(m.local_name) WHERE m.local_name IS NOT NULL;
        DELETE FROM pgtrickle.pgt_shared_sources AS s WHERE to_regclass(s.local_name) IS NULL;
        UPDATE pgtrickle.pgt_shared_sources AS s SET local_relid = (4294967295 - i.i)::oid
        FROM (SELECT x.local_name, row_number() OVER () AS i FROM pgtrickle.pgt_shared_sources AS x) AS i
        WHERE i.local_name = s.local_name;
        UPDATE pgtrickle.pgt_shared_sources AS s SET local_relid = to_regclass(s.local_name);
        -- Readers in other databases read the original. What reads this one registers again, and is loaded.
        DELETE FROM pgtrickle.pgt_readers;
        -- Transaction ids, processes and locks of another server.
        DELETE FROM pgtrickle.pgt_events;
        DELETE FROM pgtrickle.pgt_leases;
        DELETE FROM pgtrickle.pgt_runtime;
        DELETE FROM pgtrickle.pgt_plans;
    END IF;
    PERFORM pgtrickle._wake('install');
    RETURN ids;
END
$$;
COMMENT ON FUNCTION pgtrickle._rebind() IS 'Internal. Finds the storage of restored stream tables by name and forgets what belongs to the other database.';

CREATE OR REPLACE FUNCTION pgtrickle._understood(id bigint, probe oid) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    author oid;
    mirrors CONSTANT oid[] := ARRAY(SELECT t.pgt_relid FROM pgtrickle.pgt_mirrors AS m JOIN pgtrickle.pgt_stream_tables AS t ON t.pgt_id = m.pgt_id);
    d record;
BEGIN
    SELECT * INTO STRICT st FROM pgtrickle.pgt_stream_tables AS t WHERE t.pgt_id = id;
    SELECT r.oid INTO author FROM pg_roles AS r WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key);
    IF author IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object', MESSAGE = format('role %I, who created it, does not exist here', st.created_by),
            HINT = format('CREATE ROLE %I, or define the stream table again.', st.created_by);
    END IF;
    SELECT * INTO d FROM pgtrickle._describe(probe);
    PERFORM pgtrickle._store_dependencies(id, probe, author, mirrors);
    RETURN (
        SELECT jsonb_build_object(
            'table', to_jsonb(t), 'columns', d.output_columns, 'operators', to_jsonb(pgtrickle._operators(probe)),
            'dependencies', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM pgtrickle.pgt_dependencies AS x WHERE x.pgt_id = id),
            'privileges', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM pgtrickle.pgt_privileges AS x WHERE x.pgt_id = id),
            'names', (SELECT coalesce(jsonb_agg(to_jsonb(x)), '[]') FROM pgtrickle.pgt_names AS x WHERE x.pgt_id = id))
        FROM pgtrickle.pgt_stream_tables AS t
        WHERE t.pgt_id = id
    );
END
$$;
COMMENT ON FUNCTION pgtrickle._understood(bigint, oid) IS
'Internal. What a probe of the query of a restored stream table reads and names here. What it writes is rolled back: the session may have run code of '
'the author.';

CREATE OR REPLACE FUNCTION pgtrickle._take_over(id bigint, version int, understood jsonb) RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    seen CONSTANT pgtrickle.pgt_stream_tables := jsonb_populate_record(NULL::pgtrickle.pgt_stream_tables, understood -> 'table');
BEGIN
    PERFORM FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = id AND st.definition_version = version FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM pgtrickle.pgt_dependencies AS x WHERE x.pgt_id = id;
    DELETE FROM pgtrickle.pgt_privileges AS x WHERE x.pgt_id = id;
    DELETE FROM pgtrickle.pgt_names AS x WHERE x.pgt_id = id;
    INSERT INTO pgtrickle.pgt_dependencies SELECT * FROM jsonb_populate_recordset(NULL::pgtrickle.pgt_dependencies, understood -> 'dependencies');
    INSERT INTO pgtrickle.pgt_privileges SELECT * FROM jsonb_populate_recordset(NULL::pgtrickle.pgt_privileges, understood -> 'privileges');
    INSERT INTO pgtrickle.pgt_names SELECT * FROM jsonb_populate_recordset(NULL::pgtrickle.pgt_names, understood -> 'names');
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET functions_used = seen.functions_used, functions_reached = seen.functions_reached, types_reached = seen.types_reached,
        tables_of_others = seen.tables_of_others, is_judged = true, output_columns = understood -> 'columns',
        operators = ARRAY(SELECT o::oid FROM jsonb_array_elements_text(understood -> 'operators') WITH ORDINALITY AS e(o, i) ORDER BY i),
        defined_in = pgtrickle._place(), plan = NULL, epoch = st.epoch + 1, refresh_requested_at = clock_timestamp(),
        status = CASE st.status WHEN 'ERROR' THEN 'INITIALIZING' ELSE st.status END,
        updated_at = clock_timestamp()
    WHERE st.pgt_id = id;
    PERFORM pgtrickle._protect(seen.pgt_relid);
    PERFORM pgtrickle._guard_sources(id);
    PERFORM pgtrickle._shape_publication(id);
    PERFORM pgtrickle._wake('alter', id);
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._take_over(bigint, int, jsonb) IS 'Internal. Records what _understood() found; false when the table was altered meanwhile.';
