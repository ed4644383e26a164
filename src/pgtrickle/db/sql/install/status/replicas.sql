-- Replicas, for those who may read their sources. SECURITY DEFINER because pgt_replicas and buffers are private.
CREATE OR REPLACE FUNCTION pgtrickle._replicas_seen(me text DEFAULT pgtrickle._me())
RETURNS TABLE (source_relid oid, location text, state text, row_count bigint, file_count int, bytes bigint, pending_rows bigint, committed_at timestamptz,
               readers text[], is_requested bool, last_error text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    replica record;
    caller CONSTANT name := pgtrickle._caller(me);
    pending bigint;
BEGIN
    FOR replica IN
        SELECT p.*, pg_has_role(caller, current_user, 'USAGE') AS is_keeper, to_regclass('pgtrickle_changes.changes_' || p.source_relid) AS buffer
        FROM pgtrickle.pgt_replicas AS p
        WHERE p.origin = pgtrickle._origin()
          AND (pg_has_role(caller, current_user, 'USAGE')
               OR (coalesce(has_table_privilege(caller, p.source_relid, 'SELECT'), false)
                   -- row_security_active() would answer for the service role
                   AND NOT EXISTS (SELECT
                                   FROM pg_class AS c
                                   JOIN pg_roles AS r ON r.rolname = caller
                                   WHERE c.oid = p.source_relid AND c.relrowsecurity AND NOT r.rolsuper AND NOT r.rolbypassrls
                                     AND (c.relforcerowsecurity OR NOT pg_has_role(r.oid, c.relowner, 'USAGE')))))
    LOOP
        pending := NULL;
        IF replica.buffer IS NOT NULL AND replica.snapshot IS NOT NULL THEN
            EXECUTE format('SELECT count(*) FROM %s AS b WHERE NOT pg_visible_in_snapshot(b.xid, $1)', replica.buffer) INTO pending USING replica.snapshot;
        END IF;
        RETURN QUERY SELECT
            replica.source_relid, CASE WHEN replica.is_keeper THEN replica.location END,
            CASE WHEN replica.snapshot IS NOT NULL THEN 'ready' WHEN replica.last_error IS NOT NULL THEN 'failed' ELSE 'building' END,
            replica.row_count, replica.file_count, replica.bytes, pending, CASE WHEN replica.snapshot IS NOT NULL THEN replica.updated_at END,
            ARRAY(SELECT format('%I.%I', st.pgt_schema, st.pgt_name) FROM pgtrickle.pgt_stream_tables AS st WHERE st.pgt_id = ANY (replica.readers) ORDER BY 1),
            replica.is_requested, replica.last_error;
    END LOOP;
END
$$;
COMMENT ON FUNCTION pgtrickle._replicas_seen(text) IS
'Internal. Replicas whose source the caller may read, all of its rows; all, with their directories, for the role that installed pgtrickle.';

CREATE OR REPLACE FUNCTION pgtrickle.replicas()
RETURNS TABLE (source_table text, source_oid oid, state text, row_count bigint, bytes bigint, files int,
               pending_rows bigint, committed_at timestamptz, readers text[],
               requested bool, last_error text, location text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._table_name(r.source_relid), r.source_relid, r.state, r.row_count, r.bytes, r.file_count,
           r.pending_rows, r.committed_at, r.readers, r.is_requested,
           r.last_error, r.location
    FROM pgtrickle._replicas_seen() AS r
    ORDER BY 1
$$;
COMMENT ON FUNCTION pgtrickle.replicas() IS
'Columnar replicas of tables whose rows the caller may read: state (building, ready or failed), rows, bytes and files at its cut, changes since, when it '
'was last committed, stream tables that read it, whether a user requested it. location, for the role that installed pgtrickle: its directory on the machine '
'of the control plane.';
