-- Removes answers that validate_query shows no more, and what nobody waits for any more in explain_query.
DELETE FROM pgtrickle.pgt_plans AS p
WHERE (p.understood IS NOT NULL AND p.answered_at < clock_timestamp() - interval '1 minute')
   OR p.asked_at < clock_timestamp() - interval '1 hour'
