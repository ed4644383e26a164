-- Forgets old refreshes, a bounded number at a time. %(days)s.
DELETE FROM pgtrickle.pgt_refresh_history
WHERE refresh_id = ANY (ARRAY(
    SELECT refresh_id
    FROM pgtrickle.pgt_refresh_history
    WHERE start_time < now() - make_interval(days => %(days)s)
    LIMIT 10000
))
