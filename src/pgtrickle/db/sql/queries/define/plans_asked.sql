-- Requests of explain_query and validate_query that have no answer yet. Returns: id, query, search_path, role.
SELECT p.plan_id, coalesce(p.statement, p.query), CASE WHEN p.statement IS NULL THEN p.search_path ELSE '' END, p.asked_by
FROM pgtrickle.pgt_plans AS p
WHERE p.answered_at IS NULL
ORDER BY p.plan_id
