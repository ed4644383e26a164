-- Reasons from before they had codes. Texts that decided whether a table is refreshed by its schedule alone get the code that decides it now.
UPDATE pgtrickle.pgt_stream_tables AS st
SET mode_reason_code = r.code,
    mode_reason_params = r.params,
    mode_reason = pgtrickle._reason_text(r.code, r.params)
FROM pgtrickle.pgt_stream_tables AS t
CROSS JOIN LATERAL (
    SELECT k.code, pg_catalog.jsonb_build_object(k.parameter, m[1])
    FROM (VALUES
        (1, 'stable_function', 'function', '^the query calls the stable function (.*), whose result may change while no source does$'),
        (2, 'text_reads_clock', 'type', '^the query casts text to (.*), which reads the clock for values such as ''now''$'),
        (3, 'json_reads_clock', 'type', '^the query reads (.*) out of JSON, for which values such as ''now'' read the clock$'),
        (4, 'session_value', 'function', '^the query uses (CURRENT_DATE, CURRENT_USER or the like)$'),
        (5, 'earlier', 'text', '^(.*)$')
    ) AS k(position, code, parameter, pattern)
    CROSS JOIN LATERAL pg_catalog.regexp_matches(t.mode_reason, k.pattern) AS m
    ORDER BY k.position
    LIMIT 1
) AS r(code, params)
WHERE st.pgt_id = t.pgt_id AND t.mode_reason IS NOT NULL AND t.mode_reason_code IS NULL;

UPDATE pgtrickle.pgt_stream_tables AS st
SET reinit_reason_code = 'earlier', reinit_reason_params = pg_catalog.jsonb_build_object('text', st.reinit_reason)
WHERE st.reinit_reason IS NOT NULL AND st.reinit_reason_code IS NULL;

UPDATE pgtrickle.pgt_stream_tables AS st
SET last_error_code = 'waits_for_stream_table'
WHERE st.last_error_code IS NULL AND pg_catalog.starts_with(st.last_error_message, 'waits for stream table ');
