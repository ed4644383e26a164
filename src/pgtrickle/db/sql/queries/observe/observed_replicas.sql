-- Columnar replicas of tables of this database. No parameters.
SELECT r.source_table AS source, r.source_oid::int8 AS relid, r.state, r.row_count AS rows, r.bytes, r.files, r.pending_rows,
       extract(epoch FROM r.committed_at)::float8 AS committed_at, r.readers, r.requested, r.last_error AS error
FROM pgtrickle.replicas() AS r
