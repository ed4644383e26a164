-- Relations with what the planner needs of them. Run with the path pg_catalog, pg_temp, so that a view's text is qualified.
-- %(relids)s: array of their oids. One statement for all that a query reads: a fresh session plans it once.
-- Returns: relid, schema, name, relkind, query (views only), has_children, columns json [{attnum, name, type, typid, typmod, not_null, base, virtual}],
-- key: attribute numbers of a unique index without NULLs, the primary key first; indexed: those that an index leads with;
-- whether it is a view WITH (security_barrier).
SELECT
    c.oid::int8,
    n.nspname::text,
    c.relname::text,
    c.relkind::text,
    CASE WHEN c.relkind = 'v' THEN pgtrickle._query_text(c.oid) END,
    EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhparent = c.oid),
    (
        SELECT coalesce(json_agg(json_build_object(
            'attnum', a.attnum,
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'typid', a.atttypid::int8,
            'typmod', a.atttypmod,
            -- PostgreSQL 18: rows from before a constraint that is NOT VALID may have NULLs.
            'not_null', a.attnotnull AND NOT EXISTS (SELECT FROM pg_constraint AS k
                                                     WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
                                                       AND k.conkey = ARRAY[a.attnum]),
            'base', CASE WHEN a.atttypid < 16384 THEN a.atttypid ELSE pgtrickle._base_type(a.atttypid) END::int8,
            'virtual', CASE WHEN a.attgenerated = 'v' AND pgtrickle._virtual_expression(a.attrelid, a.attnum) IS NOT NULL THEN
                pgtrickle._virtual_expression(a.attrelid, a.attnum)
                || ARRAY(SELECT b.attname::text FROM pgtrickle._virtual_basis(a.attrelid, a.attnum) AS v
                         JOIN pg_attribute AS b ON b.attrelid = a.attrelid AND b.attnum = v) END
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute AS a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ),
    pgtrickle._key(c.oid),
    ARRAY(SELECT DISTINCT i.indkey[0] FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL),
    EXISTS (SELECT FROM pg_options_to_table(c.reloptions) AS o WHERE o.option_name = 'security_barrier' AND o.option_value::bool)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY (%(relids)s::oid[])
