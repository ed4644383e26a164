-- Whether the probe uses rows as a whole, or system columns. Returns: bool.
SELECT coalesce(bool_or(r.node_tree ~ '\{VAR :varno \d+ :varattno (0|-\d+) '), false)
FROM pgtrickle._rules('pg_temp.__pgt_probe'::regclass::oid) AS r
