-- Removes expired answers of validate_query, and requests of explain_query whose callers have stopped waiting.
DELETE FROM pgtrickle.pgt_plans AS p
WHERE (p.understood IS NOT NULL AND p.answered_at < clock_timestamp() - interval '1 minute')
   OR p.asked_at < clock_timestamp() - interval '1 hour'
