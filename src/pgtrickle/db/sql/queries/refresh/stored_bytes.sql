-- The size of a table, to tell whether the result of its query is small. TOAST is not counted.
-- %(relid)s: the table's oid.
-- Returns one row: bytes; NULL if the table does not exist.
SELECT pgtrickle._stored_size(%(relid)s::oid)
