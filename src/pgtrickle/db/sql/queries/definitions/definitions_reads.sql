-- Which stream tables read which others.
-- Returns: schema and name of the reader, schema and name of what it reads.
SELECT reader.pgt_schema, reader.pgt_name, source.pgt_schema, source.pgt_name
FROM pgtrickle.pgt_dependencies AS d
JOIN pgtrickle.pgt_stream_tables AS reader ON reader.pgt_id = d.pgt_id
JOIN pgtrickle.pgt_stream_tables AS source ON source.pgt_relid = d.source_relid
WHERE reader.pgt_id <> source.pgt_id
