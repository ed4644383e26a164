-- The first statement of an apply: moves the epoch from the value that the refresh has read. Changes no row when somebody was first.
-- %(frontier)s jsonb text, %(data_timestamp)s, %(requested_at)s (the request that this refresh answers, or NULL), %(settled)s jsonb text (what the
-- content rests on besides the sources: TimeZone, the functions that the query calls),
-- %(pgt_id)s, %(epoch)s.
UPDATE pgtrickle.pgt_stream_tables
SET epoch = epoch + 1,
    frontier = %(frontier)s::jsonb,
    data_timestamp = %(data_timestamp)s,
    last_refresh_at = clock_timestamp(),
    is_populated = true,
    status = 'ACTIVE',
    needs_reinit = false,
    reinit_reason = NULL,
    refresh_done_at = coalesce(%(requested_at)s, refresh_done_at),
    consecutive_errors = 0,
    last_error_message = NULL,
    plan = CASE WHEN plan @> %(settled)s::jsonb THEN plan ELSE plan || %(settled)s::jsonb END,
    updated_at = clock_timestamp()
WHERE pgt_id = %(pgt_id)s AND epoch = %(epoch)s
