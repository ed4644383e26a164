-- Databases that this role may enter.
-- Returns: oid, name, rows inserted so far (system catalogs included; 0 where statistics are off).
SELECT d.oid::int8, d.datname, coalesce(pg_stat_get_db_tuples_inserted(d.oid), 0)
FROM pg_database AS d
WHERE d.datallowconn AND d.datconnlimit <> -2 AND NOT d.datistemplate AND has_database_privilege(d.oid, 'CONNECT')
ORDER BY d.datname
