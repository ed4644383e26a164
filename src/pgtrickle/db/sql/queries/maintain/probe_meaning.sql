-- What a view's query was understood as. %(view)s: its name. Returns: oids of its own operators, of all functions in it and in views below that
-- are not PostgreSQL's own, of all relations.
SELECT
    pgtrickle._operators(v.oid)::int8[],
    ARRAY(SELECT f.funcid::int8 FROM pgtrickle._functions_called(v.oid) AS f WHERE NOT f.is_system ORDER BY f.funcid),
    ARRAY(SELECT DISTINCT r.relid::int8 FROM pgtrickle._reads(v.oid) AS r)
FROM (SELECT %(view)s::pg_catalog.regclass::oid) AS v(oid)
