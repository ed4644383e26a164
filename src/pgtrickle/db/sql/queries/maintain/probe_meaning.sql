-- How PostgreSQL resolved the query of a view. %(view)s: its name. Returns three arrays of oids: the operators of the query itself; the functions in it
-- and in the views that it reads that are not PostgreSQL's own; all relations that it reads.
SELECT
    pgtrickle._operators(v.oid)::int8[],
    ARRAY(SELECT f.funcid::int8 FROM pgtrickle._functions_called(v.oid) AS f WHERE NOT f.is_system ORDER BY f.funcid),
    ARRAY(SELECT DISTINCT r.relid::int8 FROM pgtrickle._reads(v.oid) AS r)
FROM (SELECT %(view)s::pg_catalog.regclass::oid) AS v(oid)
