-- The readers of change buffers, the position of each, and how to remove a reader that no longer exists.
-- Names of mirrors in other databases are shown to roles that may read the source, and to the role that installed pgtrickle.

CREATE OR REPLACE VIEW pgtrickle._readers AS
SELECT e.reader_key, e.mirror_id, e.source_relid, e.snapshot IS NOT NULL AS loaded, e.updated_at, n.server, n.database,
       CASE WHEN n.server = '' THEN '' ELSE n.server || '/' END || pg_catalog.quote_ident(n.database) || ': pgtrickle_changes.mirror_' || e.mirror_id AS name
FROM pgtrickle.pgt_readers AS e
LEFT JOIN LATERAL (SELECT e.reader_server AS server, e.reader_database::text AS database WHERE pgtrickle._may_read(e.source_relid, NULL)) AS n ON true;
COMMENT ON VIEW pgtrickle._readers IS 'Internal. Mirrors in other databases; their names for those who may see them, NULL for others.';

-- SECURITY DEFINER because buffers are private. It shows counts, never rows, and only to roles that may read the source, or the stream table that
-- is the reader: other roles must not learn how much is written to a table.
CREATE OR REPLACE FUNCTION pgtrickle._buffer_sizes(me text DEFAULT pgtrickle._me())
RETURNS TABLE (source_relid oid, pgt_id bigint, reader_key text, mirror_id bigint, subscriber text, cdc_mode text, pending_rows bigint,
    buffer_bytes bigint, row_count bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    source record;
    origin CONSTANT text := pgtrickle._origin();
    caller CONSTANT name := pgtrickle._caller(me);
BEGIN
    FOR source IN
        SELECT s.source_relid AS relid, b.oid AS buffer,
               pg_has_role(caller, current_user, 'USAGE') OR coalesce(has_table_privilege(caller, s.source_relid, 'SELECT'), false) AS shown
        FROM pgtrickle.pgt_sources AS s
        JOIN pg_class AS b ON b.relnamespace = 'pgtrickle_changes'::regnamespace AND b.relname = 'changes_' || s.source_relid
    LOOP
        RETURN QUERY EXECUTE format($sql$
            SELECT $1, c.pgt_id, c.reader_key, c.mirror_id, c.subscriber, c.cdc_mode,
                   CASE WHEN c.shown THEN b.pending END,
                   CASE WHEN c.shown THEN pg_total_relation_size($2) END,
                   CASE WHEN c.shown THEN b.total END
            FROM (SELECT d.pgt_id, NULL::text, NULL::bigint, NULL::text, d.cdc_mode, (st.frontier -> $3 ->> 'snapshot')::pg_snapshot,
                         $4 OR coalesce(has_table_privilege($5, st.pgt_relid, 'SELECT'), false)
                            OR coalesce((SELECT pg_has_role($5, r.oid, 'USAGE') FROM pg_roles AS r
                                WHERE r.rolname = pgtrickle._author(st.created_by, st.created_key)), false)
                  FROM pgtrickle.pgt_dependencies AS d
                  JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = d.pgt_id
                  WHERE d.source_relid = $1
                  UNION ALL
                  SELECT NULL, e.reader_key, e.mirror_id, NULL, 'trigger', e.snapshot, $4
                  FROM pgtrickle.pgt_readers AS e
                  WHERE e.source_relid = $1
                  UNION ALL
                  SELECT NULL, NULL, NULL, u.subscriber, 'trigger', u.snapshot, $4
                  FROM pgtrickle.pgt_subscribers AS u
                  JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = u.pgt_id
                  WHERE st.pgt_relid = $1) AS c(pgt_id, reader_key, mirror_id, subscriber, cdc_mode, cut, shown)
            -- Not read at all for those who must not see it: the time would tell how much was written.
            CROSS JOIN LATERAL (SELECT count(*) FILTER (WHERE c.cut IS NULL OR NOT pg_visible_in_snapshot(r.xid, c.cut)), count(*)
                                FROM %s AS r
                                WHERE c.shown) AS b(pending, total)
            $sql$, source.buffer::regclass)
        USING source.relid, source.buffer, origin, source.shown, caller;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._buffer_sizes(text) IS
'Internal. Per reader of each captured source, a stream table here, a mirror in another database or a subscriber: changes that it has not seen, bytes '
'and rows of the buffer; NULL for those who may read neither the source nor the reader.';

CREATE OR REPLACE FUNCTION pgtrickle._table_name(relid oid) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.oid = relid), relid::text)
$$;
COMMENT ON FUNCTION pgtrickle._table_name(oid) IS 'Internal. Schema and name of a table, or its oid when it is gone.';

CREATE OR REPLACE FUNCTION pgtrickle.change_buffer_sizes()
RETURNS TABLE (stream_table text, source_table text, source_oid oid, cdc_mode text, pending_rows bigint, buffer_bytes bigint, row_count bigint)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN z.subscriber IS NOT NULL THEN CASE WHEN z.row_count IS NOT NULL THEN 'subscriber ' || z.subscriber END
                WHEN z.pgt_id IS NULL THEN n.name
                ELSE format('%I.%I', st.pgt_schema, st.pgt_name) END,
           pgtrickle._table_name(z.source_relid), z.source_relid, z.cdc_mode, z.pending_rows, z.buffer_bytes, z.row_count
    FROM pgtrickle._buffer_sizes() AS z
    LEFT JOIN pgtrickle.pgt_stream_tables AS st ON st.pgt_id = z.pgt_id
    LEFT JOIN pgtrickle._readers AS n ON n.reader_key = z.reader_key AND n.mirror_id = z.mirror_id
    ORDER BY 2, z.pgt_id IS NULL, 1, z.mirror_id
$$;
COMMENT ON FUNCTION pgtrickle.change_buffer_sizes() IS
'Per reader and captured source: changes not yet applied (exact), size and rows of the buffer. Readers are stream tables here, as "database: mirror" '
'copies in other databases, and as "subscriber name" those who read the change feed of a stream table; the latter two are named to those who may read '
'the source. Numbers are for those who may read the source or the stream table.';

CREATE OR REPLACE FUNCTION pgtrickle.readers()
RETURNS TABLE (reader text, server text, database text, source_table text, source_oid oid, loaded bool, last_seen timestamptz, pending_rows bigint,
               buffer_bytes bigint, late bool, mirror_id bigint, reader_key text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT e.name, e.server, e.database, pgtrickle._table_name(e.source_relid), e.source_relid, e.loaded, e.updated_at,
           CASE WHEN z.reader_key IS NULL THEN 0 ELSE z.pending_rows END, CASE WHEN z.reader_key IS NULL THEN 0 ELSE z.buffer_bytes END,
           coalesce(z.pending_rows > 0 AND e.updated_at < clock_timestamp() - interval '1 hour', false), e.mirror_id, e.reader_key
    FROM pgtrickle._readers AS e
    LEFT JOIN pgtrickle._buffer_sizes() AS z ON z.reader_key = e.reader_key AND z.mirror_id = e.mirror_id
    ORDER BY e.reader_key, e.mirror_id
$$;
COMMENT ON FUNCTION pgtrickle.readers() IS
'Mirrors in other databases of tables of this one: when each last reported its position, its unread changes, size of the buffer that is kept for it. '
'late: changes are pending for it and it has not reported for an hour. server: empty for this one. Names and numbers are shown to roles that may read '
'the source.';

CREATE OR REPLACE FUNCTION pgtrickle.detach_reader(database text, server text DEFAULT NULL, mirror_id bigint DEFAULT NULL, reader_key text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    number int;
    several text;
BEGIN
    PERFORM pgtrickle._require_primary();
    IF NOT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class AS c WHERE c.oid = 'pgtrickle.pgt_readers'::regclass) THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = 'only the role that installed pgtrickle may detach readers';
    END IF;
    SELECT string_agg(DISTINCT format('server => %L, reader_key => %L', e.reader_server, e.reader_key), '; ') INTO several
    FROM pgtrickle.pgt_readers AS e
    WHERE e.reader_database = detach_reader.database
      AND e.reader_server = coalesce(detach_reader.server, e.reader_server)
      AND e.reader_key = coalesce(detach_reader.reader_key, e.reader_key)
    HAVING count(DISTINCT e.reader_key) > 1;
    IF several IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('several databases that have or had the name %I read tables of this one', detach_reader.database),
            HINT = format('Name one of them: %s.', several);
    END IF;
    DELETE FROM pgtrickle.pgt_readers AS e
    WHERE e.reader_database = detach_reader.database
      AND e.reader_server = coalesce(detach_reader.server, e.reader_server)
      AND e.reader_key = coalesce(detach_reader.reader_key, e.reader_key)
      AND e.mirror_id = coalesce(detach_reader.mirror_id, e.mirror_id);
    GET DIAGNOSTICS number = ROW_COUNT;
    IF number = 0 THEN
        RAISE EXCEPTION USING ERRCODE = 'undefined_object',
            MESSAGE = format('no such reader of database %I', detach_reader.database), HINT = 'SELECT * FROM pgtrickle.readers() lists them.';
    END IF;
    RETURN number;
END
$$;
COMMENT ON FUNCTION pgtrickle.detach_reader(text, text, bigint, text) IS
'Removes the mirrors of a database that no longer exists, so that change buffers are trimmed without waiting for it; returns their number. Requires '
'the role that installed pgtrickle. A mirror that returns is loaded again.';
