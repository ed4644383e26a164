-- A lease that has run out means nothing to those that hold a lock instead. %(name)s.
DELETE FROM pgtrickle.pgt_leases
WHERE name = %(name)s AND until <= clock_timestamp()
