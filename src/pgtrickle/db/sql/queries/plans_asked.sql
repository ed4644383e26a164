-- Questions of explain_query that wait. Returns: id, query, search_path, role.
SELECT p.plan_id, p.query, p.search_path, p.asked_by
FROM pgtrickle.pgt_plans AS p
WHERE p.plan IS NULL AND p.error_message IS NULL
ORDER BY p.plan_id
