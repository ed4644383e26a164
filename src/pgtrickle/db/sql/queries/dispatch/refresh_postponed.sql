-- Records why a refresh was postponed, which does not count as a failure. %(id)s: pgt_id; %(code)s, %(message)s: of the error.
UPDATE pgtrickle.pgt_stream_tables
SET last_error_code = %(code)s, last_error_message = %(message)s
WHERE pgt_id = %(id)s AND (last_error_code, last_error_message) IS DISTINCT FROM (%(code)s, %(message)s)
