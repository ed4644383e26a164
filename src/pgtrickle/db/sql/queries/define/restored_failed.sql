-- Records why the query of a restored stream table cannot be evaluated here. %(id)s, %(code)s, %(message)s.
UPDATE pgtrickle.pgt_stream_tables
SET status = CASE status WHEN 'SUSPENDED' THEN 'SUSPENDED' ELSE 'ERROR' END,
    last_error_code = %(code)s,
    last_error_message = %(message)s,
    updated_at = clock_timestamp()
WHERE pgt_id = %(id)s AND last_error_message IS DISTINCT FROM %(message)s
