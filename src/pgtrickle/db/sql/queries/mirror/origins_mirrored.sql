-- The databases whose tables are mirrored here. No parameters. Returns: their keys.
SELECT DISTINCT m.origin_key
FROM pgtrickle.pgt_mirrors AS m
