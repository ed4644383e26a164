-- Questions of explain_query and validate_query that wait. Returns: id, query, search_path, role.
SELECT p.plan_id, p.query, p.search_path, p.asked_by
FROM pgtrickle.pgt_plans AS p
WHERE p.answered_at IS NULL
ORDER BY p.plan_id
