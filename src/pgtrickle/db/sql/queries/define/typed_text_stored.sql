-- Stores the query as a user would type it now. %(id)s: pgt_id; %(typed)s.
UPDATE pgtrickle.pgt_stream_tables SET original_query = %(typed)s WHERE pgt_id = %(id)s
