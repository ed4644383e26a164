-- Answers a question of explain_query. %(id)s; %(plan)s or %(message)s: the answer, or why there is none.
UPDATE pgtrickle.pgt_plans AS p SET plan = %(plan)s, error_message = %(message)s WHERE p.plan_id = %(id)s
