-- Forgets events that the scheduler has seen, and units of work after a day. Bounded: the rest goes at the next call.
-- %(seen)s: events of all transactions before this one have been processed; NULL keeps all events.
WITH events AS (
    DELETE FROM pgtrickle.pgt_events
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM pgtrickle.pgt_events
        WHERE xid < %(seen)s::text::xid8
        LIMIT 10000
    ))
)
DELETE FROM pgtrickle.pgt_scheduler_jobs
WHERE ctid = ANY (ARRAY(
    SELECT ctid
    FROM pgtrickle.pgt_scheduler_jobs
    WHERE enqueued_at < clock_timestamp() - interval '1 day'
    LIMIT 10000
))
