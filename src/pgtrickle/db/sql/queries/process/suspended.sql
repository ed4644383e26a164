-- Stream tables that are not refreshed until somebody resumes them. No parameters. Returns: id and the last error.
SELECT st.pgt_id, st.last_error_message
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.status = 'SUSPENDED'
