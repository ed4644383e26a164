-- Records a refresh that failed; the status follows from who has to act.
-- %(message)s, %(action)s, %(started_at)s, %(initiated_by)s, %(counts)s: transient, counted towards SUSPENDED, otherwise ERROR at once;
-- %(max_consecutive)s, %(reload)s: the content is not trusted any more: load it anew, and fence whoever still works on it;
-- %(requested_at)s: the request that has its answer now, %(pgt_id)s, %(definition_version)s.
-- Returns the new status; no row when the table was dropped or redefined meanwhile.
WITH failed AS (
    UPDATE pgtrickle.pgt_stream_tables
    SET consecutive_errors = consecutive_errors + 1,
        last_error_message = %(message)s,
        status = CASE WHEN NOT %(counts)s THEN 'ERROR'
                      WHEN consecutive_errors + 1 >= %(max_consecutive)s THEN 'SUSPENDED'
                      ELSE status END,
        needs_reinit = needs_reinit OR %(reload)s,
        reinit_reason = CASE WHEN %(reload)s THEN %(message)s ELSE reinit_reason END,
        epoch = epoch + %(reload)s::bool::int,
        refresh_done_at = CASE WHEN %(counts)s THEN refresh_done_at ELSE coalesce(%(requested_at)s, refresh_done_at) END,
        updated_at = clock_timestamp()
    WHERE pgt_id = %(pgt_id)s AND definition_version = %(definition_version)s
    RETURNING pgt_id, status
), recorded AS (
    INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, initiated_by, error_message)
    SELECT f.pgt_id, %(started_at)s, clock_timestamp(), %(action)s, 'FAILED', %(initiated_by)s, %(message)s
    FROM failed AS f
)
SELECT f.status
FROM failed AS f
