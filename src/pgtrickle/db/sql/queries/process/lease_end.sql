-- Releases our lease. The row stays: it shows that no scheduler runs, whatever the names of a pooler's idle sessions are. %(name)s, %(holder)s.
UPDATE pgtrickle.pgt_leases
SET until = '-infinity'
WHERE name = %(name)s AND holder = %(holder)s
