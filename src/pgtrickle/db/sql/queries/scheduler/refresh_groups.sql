-- The groups of stream tables that are refreshed together. Returns: name, members, isolation.
SELECT group_name, members, isolation
FROM pgtrickle.pgt_refresh_groups
ORDER BY group_name
