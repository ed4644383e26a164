-- The first statement of an apply. It increments the epochs that the refreshes have read, and returns the tables whose epoch was still the same.
-- It omits tables that another worker committed first, and tables with a source, a column or another object that was renamed: the refresh may
-- have read another object by that name. After that it locks the storage tables: callers who wait for a refresh see its transaction meanwhile.
-- The parameters are arrays of equal length: %(ids)s, %(epochs)s, %(frontiers)s (jsonb texts), %(data_timestamps)s;
-- %(requested_at)s: the time of the request that the refresh fulfils, or NULL;
-- %(settled)s (jsonb texts): what the content depends on besides the sources, such as TimeZone and the functions that the query calls.
-- Returns: pgt_id; whether the storage table still has its name (if not, the transaction must be rolled back); whether this transaction holds the
-- lock by which waiting sessions learn of the commit (NULL: nobody asked for the refresh). If another session holds that lock, they poll instead.
WITH moved AS (
    UPDATE pgtrickle.pgt_stream_tables AS st
    SET epoch = st.epoch + 1,
        frontier = r.frontier::jsonb,
        data_timestamp = r.data_timestamp,
        last_refresh_at = clock_timestamp(),
        is_populated = true,
        status = 'ACTIVE',
        needs_reinit = false,
        reinit_reason_code = NULL,
        reinit_reason_params = NULL,
        reinit_reason = NULL,
        refresh_done_at = coalesce(r.requested_at, st.refresh_done_at),
        consecutive_errors = 0,
        last_error_code = NULL,
        last_error_message = NULL,
        plan = CASE WHEN st.plan @> r.settled::jsonb THEN st.plan ELSE st.plan || r.settled::jsonb END,
        updated_at = clock_timestamp()
    FROM unnest(
        %(ids)s::int8[], %(epochs)s::int8[], %(frontiers)s::text[], %(data_timestamps)s::timestamptz[], %(requested_at)s::timestamptz[],
        %(settled)s::text[]
    ) AS r (pgt_id, epoch, frontier, data_timestamp, requested_at, settled)
    WHERE st.pgt_id = r.pgt_id
      AND st.epoch = r.epoch
      AND NOT EXISTS (
          SELECT
          FROM pgtrickle.pgt_names AS k
          WHERE k.pgt_id = st.pgt_id AND pgtrickle._is_called_otherwise(k.classid, k.objid, k.objsubid, k.name)
      )
      AND NOT EXISTS (
          SELECT
          FROM pgtrickle.pgt_dependencies AS d
          WHERE d.pgt_id = st.pgt_id
            AND (
                pgtrickle._is_renamed(d.source_relid, d.source_schema, d.source_name)
                OR EXISTS (
                    SELECT
                    FROM unnest(d.columns_used, d.column_names) AS k (attnum, name)
                    WHERE pgtrickle._is_renamed(d.source_relid, k.attnum, d.source_schema, d.source_name, k.name)
                )
            )
      )
    RETURNING st.pgt_id, st.pgt_relid, st.pgt_schema, st.pgt_name,
        CASE WHEN r.requested_at IS NOT NULL THEN pg_try_advisory_xact_lock(pgtrickle._commit_lock(st.pgt_id)) END AS has_commit_lock
)
SELECT m.pgt_id, pgtrickle._hold_storage(m.pgt_id, m.pgt_relid, m.pgt_schema, m.pgt_name), m.has_commit_lock
FROM moved AS m
