-- Mirrors: stream tables that hold what is needed of a table of another database. Made by the control plane alone.

CREATE OR REPLACE FUNCTION pgtrickle._make_mirror(origin jsonb, columns jsonb, indexes jsonb, local_table oid) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    id CONSTANT bigint := nextval(pg_get_serial_sequence('pgtrickle.pgt_stream_tables', 'pgt_id'));
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
    EXECUTE format('COMMENT ON TABLE %s IS %L', qualified, format(
        'What stream tables of this database need of %s.%s.%s; maintained by pgtrickle.',
        origin ->> 'database', origin ->> 'schema', origin ->> 'table'));
    INSERT INTO pgtrickle.pgt_stream_tables
        (pgt_id, pgt_relid, pgt_name, pgt_schema, defining_query, original_query, output_columns, schedule, refresh_mode,
         effective_refresh_mode, refresh_requested_at, created_by)
    OVERRIDING SYSTEM VALUE
    SELECT id, qualified::regclass::oid, format('mirror_%s', id), 'pgtrickle_changes', q.query, q.query,
           (SELECT jsonb_agg(jsonb_build_object('name', a.attname, 'type', format_type(a.atttypid, a.atttypmod), 'typid', a.atttypid::int8,
                                                'typmod', a.atttypmod, 'collation', a.attcollation::int8) ORDER BY a.attnum)
            FROM pg_attribute AS a
            WHERE a.attrelid = qualified::regclass AND a.attnum > 0 AND a.attname <> '__pgt_row_id'),
           'calculated', 'DIFFERENTIAL', 'DIFFERENTIAL', clock_timestamp(), current_user
    FROM (SELECT format('SELECT %s FROM %I.%I AS m', string_agg('m.' || quote_ident(c ->> 'origin_name'), ', ' ORDER BY i),
                        origin ->> 'schema', origin ->> 'table') AS query
          FROM jsonb_array_elements(columns) WITH ORDINALITY AS e(c, i)) AS q;
    INSERT INTO pgtrickle.pgt_mirrors
        (pgt_id, origin_key, origin_server, origin_database, origin_schema, origin_table, origin_relid, columns_used, local_relid)
    VALUES
        (id, origin ->> 'key', origin ->> 'server', origin ->> 'database', origin ->> 'schema', origin ->> 'table',
         (origin ->> 'relid')::oid, ARRAY(SELECT (c ->> 'attnum')::int2 FROM jsonb_array_elements(columns) AS c), local_table);
    PERFORM pgtrickle._wake('create', id);
    RETURN id;
END
$$;
COMMENT ON FUNCTION pgtrickle._make_mirror(jsonb, jsonb, jsonb, oid) IS
'Internal. An empty mirror of a table of another database. columns: {attnum, name, origin_name, type, collation, not_null}; indexes: {columns, is_unique}.';

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
    -- Who defines something over a mirror holds its row until that is noted.
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
COMMENT ON FUNCTION pgtrickle._drop_mirror(bigint) IS 'Internal. Drops a mirror that no stream table reads any more, its origin having been told; false when one does again.';
