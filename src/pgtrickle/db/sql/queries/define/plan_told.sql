-- Answers a question of explain_query or validate_query. %(id)s; %(plan)s with %(mode)s, %(reason)s and %(hint)s, or %(message)s: the answer,
-- or why there is none.
UPDATE pgtrickle.pgt_plans AS p
SET plan = %(plan)s, mode = %(mode)s, reason = %(reason)s, hint = %(hint)s, error_message = %(message)s, answered_at = clock_timestamp()
WHERE p.plan_id = %(id)s
