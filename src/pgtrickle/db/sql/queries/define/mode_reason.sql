-- Why a stream table is refreshed in FULL. %(id)s: pgt_id; %(reason_code)s, %(reason_params)s jsonb, %(reason)s: its text.
UPDATE pgtrickle.pgt_stream_tables AS st
SET mode_reason_code = %(reason_code)s,
    mode_reason_params = %(reason_params)s::jsonb,
    mode_reason = %(reason)s
WHERE st.pgt_id = %(id)s
  AND st.effective_refresh_mode = 'FULL'
  AND (st.mode_reason_code, st.mode_reason_params) IS DISTINCT FROM (%(reason_code)s::text, %(reason_params)s::jsonb)
