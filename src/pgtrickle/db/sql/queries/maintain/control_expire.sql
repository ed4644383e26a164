-- Deletes events that the scheduler has processed, and units of work that are older than a day. One call deletes a bounded number of rows; later calls
-- delete the others. %(seen)s: events of all transactions before this one have been processed; NULL keeps all events.
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
