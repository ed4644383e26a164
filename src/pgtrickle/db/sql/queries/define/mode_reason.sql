-- Why a stream table is refreshed in FULL. %(id)s: pgt_id; %(reason)s.
UPDATE pgtrickle.pgt_stream_tables AS st
SET mode_reason = %(reason)s
WHERE st.pgt_id = %(id)s AND st.effective_refresh_mode = 'FULL' AND st.mode_reason IS DISTINCT FROM %(reason)s
