-- Locks the row of a stream table unless it was altered. %(id)s: the stream table; %(version)s: of the definition. Returns: a row if it was not.
SELECT
FROM pgtrickle.pgt_stream_tables AS st
WHERE st.pgt_id = %(id)s AND st.definition_version = %(version)s
FOR UPDATE
