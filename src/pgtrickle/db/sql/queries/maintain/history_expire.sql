-- Deletes old refreshes from the history, a bounded number in each call. %(days)s: how many days of history are kept.
DELETE FROM pgtrickle.pgt_refresh_history
WHERE refresh_id = ANY (ARRAY(
    SELECT refresh_id
    FROM pgtrickle.pgt_refresh_history
    WHERE start_time < now() - make_interval(days => %(days)s)
    LIMIT 10000
))
