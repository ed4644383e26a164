{# Generic tests over stream tables. A test fails when its query returns rows. #}

{# It is loaded, works, and lags behind its sources by no more than `max_lag` (an interval). #}
{% test stream_table_is_fresh(model, max_lag='5 minutes') %}
SELECT pgt_schema, pgt_name, status, behind_seconds, last_error_message
FROM (VALUES (1)) AS one(n)
LEFT JOIN pgtrickle.stream_tables_info ON pgt_schema = {{ pgtrickle.literal(model.schema) }} AND pgt_name = {{ pgtrickle.literal(model.identifier) }}
WHERE pgt_name IS NULL OR status IN ('ERROR', 'SUSPENDED') OR NOT is_populated
   OR behind_seconds > extract(epoch FROM {{ pgtrickle.literal(max_lag) }}::interval)
{% endtest %}

{# Its refreshes use changes; a query that has to be evaluated again each time fails, with the reason. #}
{% test stream_table_is_differential(model) %}
SELECT pgt_schema, pgt_name, effective_refresh_mode, mode_reason
FROM (VALUES (1)) AS one(n)
LEFT JOIN pgtrickle.stream_tables_info ON pgt_schema = {{ pgtrickle.literal(model.schema) }} AND pgt_name = {{ pgtrickle.literal(model.identifier) }}
WHERE effective_refresh_mode IS DISTINCT FROM 'DIFFERENTIAL'
{% endtest %}
