-- The texts of a definition and its author; locks the row. %(id)s: pgt_id.
-- Returns: query as PostgreSQL parsed it, query as typed, name of the author (empty: the role was dropped).
SELECT defining_query, original_query, coalesce(pgtrickle._author(created_by, created_key), '')
FROM pgtrickle.pgt_stream_tables
WHERE pgt_id = %(id)s
FOR UPDATE
