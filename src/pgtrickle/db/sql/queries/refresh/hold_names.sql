-- Locks what the queries of stream tables (%(ids)s: their numbers) name until the end of the transaction.
-- Returns: pgt_id; whether each name still means what it does in the snapshot; whether the query names types, which cannot be locked.
SELECT h.pgt_id, h.is_held, h.names_types FROM pgtrickle._hold_names(%(ids)s::int8[]) AS h
