-- Removes a lease that has expired. Processes that hold the advisory lock instead of a lease do not need it. %(name)s.
DELETE FROM pgtrickle.pgt_leases
WHERE name = %(name)s AND until <= clock_timestamp()
