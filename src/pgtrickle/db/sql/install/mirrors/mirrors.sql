-- Mirrors: stream tables that copy the needed columns of a table of another database. Only the control plane creates them.

CREATE OR REPLACE FUNCTION pgtrickle._mirror_query(origin_schema name, origin_table name, columns name[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT %s FROM %I.%I AS m', string_agg('m.' || quote_ident(c), ', ' ORDER BY i), origin_schema, origin_table)
    FROM unnest(columns) WITH ORDINALITY AS e(c, i)
$$;
COMMENT ON FUNCTION pgtrickle._mirror_query(name, name, name[]) IS 'Internal. What a mirror asks its origin for.';

CREATE OR REPLACE FUNCTION pgtrickle._comment_mirror(id bigint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    EXECUTE (SELECT format('COMMENT ON TABLE pgtrickle_changes.mirror_%s IS %L', id, format(
                        CASE WHEN m.is_stored THEN 'What stream tables of this database need of %s.%s.%s; maintained by pgtrickle.'
                             ELSE 'Stands for %s.%s.%s, whose replica a stream table of this database reads; it has no rows.' END,
                        m.origin_database, m.origin_schema, m.origin_table))
             FROM pgtrickle.pgt_mirrors AS m
             WHERE m.pgt_id = id);
END
$$;
COMMENT ON FUNCTION pgtrickle._comment_mirror(bigint) IS 'Internal. Tells people what a mirror is.';

CREATE OR REPLACE FUNCTION pgtrickle._make_mirror(origin jsonb, columns jsonb, indexes jsonb, local_table oid) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id CONSTANT bigint := nextval(pg_get_serial_sequence('pgtrickle.pgt_stream_tables', 'pgt_id'));
    stored CONSTANT bool := coalesce((origin ->> 'stored')::bool, true);
    qualified CONSTANT text := format('pgtrickle_changes.mirror_%s', id);
    definitions CONSTANT text := (
        SELECT string_agg(concat(quote_ident(c ->> 'name'), ' ', c ->> 'type', ' COLLATE ' || (c ->> 'collation'),
                                 CASE WHEN (c ->> 'not_null')::bool THEN ' NOT NULL' END), ', ' ORDER BY i)
        FROM jsonb_array_elements(columns) WITH ORDINALITY AS e(c, i));
    index record;
BEGIN
    EXECUTE format('CREATE TABLE %s (%s, __pgt_row_id bigint NOT NULL)', qualified, definitions);
    -- As at the origin: definitions that join by them find them here.
    FOR index IN
        SELECT (i ->> 'is_unique')::bool AS is_unique,
               (SELECT string_agg(quote_ident(n), ', ' ORDER BY o) FROM jsonb_array_elements_text(i -> 'columns') WITH ORDINALITY AS x(n, o)) AS names
        FROM jsonb_array_elements(indexes) AS i
    LOOP
        EXECUTE format('CREATE %s INDEX ON %s (%s)', CASE WHEN index.is_unique THEN 'UNIQUE' END, qualified, index.names);
    END LOOP;
    -- Rows are found by a key of plain types without NULLs, or else by their identity: see queries/mirror_key.sql.
    IF NOT EXISTS (SELECT FROM pg_index AS i
                   WHERE i.indrelid = qualified::regclass AND i.indisunique
                     AND NOT EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey::int2[])
                                     AND (NOT a.attnotnull OR a.attcollation <> 0 OR a.atttypid >= 16384))) THEN
        EXECUTE format('CREATE INDEX ON %s (__pgt_row_id)', qualified);
    END IF;
    EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', qualified);
    INSERT INTO pgtrickle.pgt_stream_tables
        (pgt_id, pgt_relid, pgt_name, pgt_schema, defining_query, original_query, output_columns, schedule, refresh_mode,
         effective_refresh_mode, refresh_requested_at, status, is_populated, is_judged, created_by, defined_in)
    OVERRIDING SYSTEM VALUE
    SELECT id, qualified::regclass::oid, format('mirror_%s', id), 'pgtrickle_changes', q.query, q.query,
           (SELECT jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'typid', a.atttypid::int8,
                                                'typmod', a.atttypmod, 'collation', a.attcollation::int8) ORDER BY a.attnum)
            FROM pg_attribute AS a
            WHERE a.attrelid = qualified::regclass AND a.attnum > 0 AND a.attname <> '__pgt_row_id'),
           'calculated', 'DIFFERENTIAL', 'DIFFERENTIAL', CASE WHEN stored THEN clock_timestamp() END,
           CASE WHEN stored THEN 'INITIALIZING' ELSE 'ACTIVE' END, NOT stored, true, current_user, pgtrickle._place()
    FROM (SELECT pgtrickle._mirror_query((origin ->> 'schema')::name, (origin ->> 'table')::name,
                                         ARRAY(SELECT (c ->> 'origin_name')::name FROM jsonb_array_elements(columns) AS c)) AS query) AS q;
    INSERT INTO pgtrickle.pgt_mirrors
        (pgt_id, origin_key, origin_server, origin_database, origin_schema, origin_table, origin_relid, columns_used, local_relid, local_name, is_stored)
    VALUES
        (id, origin ->> 'key', origin ->> 'server', origin ->> 'database', origin ->> 'schema', origin ->> 'table',
         (origin ->> 'relid')::oid, ARRAY(SELECT (c ->> 'attnum')::int2 FROM jsonb_array_elements(columns) AS c), local_table,
         pgtrickle._table_name(local_table), stored);
    PERFORM pgtrickle._comment_mirror(id);
    PERFORM pgtrickle._wake('create', id);
    RETURN id;
END
$$;
COMMENT ON FUNCTION pgtrickle._make_mirror(jsonb, jsonb, jsonb, oid) IS
'Internal. An empty mirror of a table of another database; it stays empty if origin has stored = false. columns: {attnum, name, origin_name, type, '
'collation, not_null}; indexes: {columns, is_unique}.';

-- The columns of the mirror are renamed, too: new definitions find it by the names of its columns, and its readers follow the renames as those of any table.
CREATE OR REPLACE FUNCTION pgtrickle._rename_mirror(id bigint, version int, new_schema name, new_table name, names name[]) RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    st pgtrickle.pgt_stream_tables;
    i int;
BEGIN
    -- One that stands for a foreign or declared table has the names of that, and its origin is found by name: see define/foreign_tables.py.
    SELECT t.* INTO st
    FROM pgtrickle.pgt_stream_tables AS t
    JOIN pgtrickle.pgt_mirrors AS m ON m.pgt_id = t.pgt_id
    WHERE t.pgt_id = id AND t.definition_version = version AND m.local_relid IS NULL
    FOR UPDATE OF t;
    IF st.pgt_id IS NULL THEN
        RETURN false;
    END IF;
    FOR i IN 1 .. cardinality(names) LOOP
        IF st.output_columns -> (i - 1) ->> 'name' <> names[i] THEN
            EXECUTE format('ALTER TABLE pgtrickle_changes.mirror_%s RENAME COLUMN %I TO __pgt_between_%s', id, st.output_columns -> (i - 1) ->> 'name', i);
        END IF;
    END LOOP;
    FOR i IN 1 .. cardinality(names) LOOP
        IF st.output_columns -> (i - 1) ->> 'name' <> names[i] THEN
            EXECUTE format('ALTER TABLE pgtrickle_changes.mirror_%s RENAME COLUMN __pgt_between_%s TO %I', id, i, names[i]);
        END IF;
    END LOOP;
    UPDATE pgtrickle.pgt_stream_tables AS t
    SET defining_query = q.query, original_query = q.query, definition_version = t.definition_version + 1, epoch = t.epoch + 1,
        output_columns = (SELECT jsonb_agg(c || jsonb_build_object('name', names[o]) ORDER BY o)
                          FROM jsonb_array_elements(t.output_columns) WITH ORDINALITY AS e(c, o)),
        updated_at = clock_timestamp()
    FROM (SELECT pgtrickle._mirror_query(new_schema, new_table, names) AS query) AS q
    WHERE t.pgt_id = id;
    UPDATE pgtrickle.pgt_mirrors AS m SET origin_schema = new_schema, origin_table = new_table WHERE m.pgt_id = id;
    PERFORM pgtrickle._comment_mirror(id);
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._rename_mirror(bigint, int, name, name, name[]) IS
'Internal. Follows a table of another database, or its columns, to other names; false when it is found by name, or was altered.';

CREATE OR REPLACE FUNCTION pgtrickle._unused_mirrors() RETURNS SETOF bigint
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT m.pgt_id
    FROM pgtrickle.pgt_mirrors AS m
    JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = m.pgt_id
    WHERE NOT EXISTS (SELECT FROM pgtrickle.pgt_dependencies AS d WHERE d.source_relid = st.pgt_relid)
$$;
COMMENT ON FUNCTION pgtrickle._unused_mirrors() IS 'Internal. Mirrors that no stream table reads any more.';

CREATE OR REPLACE FUNCTION pgtrickle._drop_mirror(id bigint) RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    -- A session that defines a stream table over a mirror locks its row until the definition is stored.
    PERFORM FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = id FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR id NOT IN (SELECT u FROM pgtrickle._unused_mirrors() AS u) THEN
        RETURN false;
    END IF;
    EXECUTE format('DROP TABLE IF EXISTS pgtrickle_changes.mirror_%s', id);
    DELETE FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = id;
    PERFORM pgtrickle._wake('drop', id);
    RETURN true;
END
$$;
COMMENT ON FUNCTION pgtrickle._drop_mirror(bigint) IS
'Internal. Drops a mirror that no stream table reads any more and that is no longer registered at its origin; false when one reads it again.';

CREATE OR REPLACE FUNCTION pgtrickle.move_server(old_server text, new_server text) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    mirrors bigint[];
    readers int;
BEGIN
    PERFORM pgtrickle._require_primary();
    IF NOT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_mirrors'::regclass) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'only the role that installed pgtrickle may move servers';
    END IF;
    IF new_server !~ ':[0-9]+$' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('%L is not host:port', new_server),
            HINT = 'For example: db2.example.com:5432';
    END IF;
    WITH moved AS (
        UPDATE pgtrickle.pgt_mirrors AS m SET origin_server = new_server WHERE m.origin_server = old_server RETURNING m.pgt_id
    )
    SELECT coalesce(array_agg(m.pgt_id), '{}') INTO mirrors FROM moved AS m;
    UPDATE pgtrickle.pgt_readers AS e SET reader_server = new_server WHERE e.reader_server = old_server;
    GET DIAGNOSTICS readers = ROW_COUNT;
    -- Names of tables as users have typed them: "database@host:port".schema.table
    UPDATE pgtrickle.pgt_shared_sources AS s
    SET origin = ARRAY[regexp_replace(s.origin[1], '@.*$', '') || '@' || new_server, s.origin[2], s.origin[3]]
    WHERE s.origin[1] LIKE '%@%' AND substr(s.origin[1], strpos(s.origin[1], '@') + 1) = old_server;
    UPDATE pgtrickle.pgt_definitions AS d SET query = replace(d.query, '@' || old_server || '"', '@' || new_server || '"')
    WHERE strpos(d.query, '@' || old_server || '"') > 0;
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET original_query = replace(st.original_query, '@' || old_server || '"', '@' || new_server || '"')
    WHERE strpos(st.original_query, '@' || old_server || '"') > 0;
    IF mirrors <> '{}' OR readers > 0 THEN
        PERFORM pgtrickle._wake('install');
    END IF;
    RETURN cardinality(mirrors) + readers;
END
$$;
COMMENT ON FUNCTION pgtrickle.move_server(text, text) IS
'After a server has got another address (host:port), for example by a failover: mirrors of its tables in this database are read there. '
'Returns the number of mirrors and readers that were moved. Requires the role that installed pgtrickle.';
