-- The size of a table, to tell whether the result of its query is small. TOAST is not counted.
-- %(relid)s: the table's oid.
-- Returns one row: bytes; NULL if the table does not exist.
SELECT pg_catalog.pg_relation_size(%(relid)s::oid::pg_catalog.regclass)
