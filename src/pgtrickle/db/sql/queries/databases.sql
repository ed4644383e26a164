-- Databases that this role may enter.
-- Returns: oid, name.
SELECT oid::int8, datname
FROM pg_database
WHERE datallowconn AND NOT datistemplate AND has_database_privilege(oid, 'CONNECT')
ORDER BY datname
