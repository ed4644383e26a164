-- Locks the table that stream table %(id)s is stored in, as INSERT does, until the end of the transaction.
-- Returns: false if another relation has its name.
SELECT pgtrickle._hold_storage(%(id)s::int8)
