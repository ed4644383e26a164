-- Records a refresh that failed. The kind of failure decides the new status:
-- %(counts)s: the failure may disappear by itself, so the status stays the same; otherwise the status becomes ERROR;
-- %(max_consecutive)s: after so many failed invariants in a row the status becomes SUSPENDED;
-- %(reload)s: an invariant failed, so the content is not trusted: the table is loaded again, and refreshes of it that are running are fenced off.
-- %(reason_code)s, %(reason_params)s, %(reason)s: why it is loaded again.
-- Other parameters: %(message)s; %(detail)s: {of: the message, text: the part that only readers of the sources may see}; %(code)s, %(action)s,
-- %(started_at)s, %(initiated_by)s, %(pgt_id)s, %(definition_version)s; %(requested_at)s: the request that this failure answers.
-- Returns: the new status; no row if the table was dropped or redefined meanwhile.
WITH failed AS (
    UPDATE pgtrickle.pgt_stream_tables
    SET consecutive_errors = consecutive_errors + 1,
        last_error_code = %(code)s,
        last_error_message = %(message)s,
        last_error_detail = %(detail)s::jsonb,
        status = CASE WHEN NOT %(counts)s THEN 'ERROR'
                      WHEN %(reload)s AND consecutive_errors + 1 >= %(max_consecutive)s THEN 'SUSPENDED'
                      ELSE status END,
        needs_reinit = needs_reinit OR %(reload)s,
        reinit_reason_code = CASE WHEN %(reload)s THEN %(reason_code)s ELSE reinit_reason_code END,
        reinit_reason_params = CASE WHEN %(reload)s THEN %(reason_params)s::jsonb ELSE reinit_reason_params END,
        reinit_reason = CASE WHEN %(reload)s THEN %(reason)s ELSE reinit_reason END,
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
