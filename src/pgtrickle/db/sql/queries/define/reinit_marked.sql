-- Marks a stream table to be loaded again, and fences running refreshes of it. An existing reason stays.
-- %(id)s: pgt_id; %(reason_code)s, %(reason_params)s jsonb, %(reason)s: its text.
UPDATE pgtrickle.pgt_stream_tables AS st
SET needs_reinit = true,
    epoch = st.epoch + 1,
    reinit_reason_code = coalesce(st.reinit_reason_code, %(reason_code)s),
    reinit_reason_params = CASE WHEN st.reinit_reason_code IS NULL THEN %(reason_params)s::jsonb ELSE st.reinit_reason_params END,
    reinit_reason = CASE WHEN st.reinit_reason_code IS NULL THEN %(reason)s ELSE st.reinit_reason END
WHERE st.pgt_id = %(id)s
