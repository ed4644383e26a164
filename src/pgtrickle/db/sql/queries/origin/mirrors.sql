-- Tables of other databases that stream tables here read. No parameters.
-- Returns: pgt_id of the mirror, key, server and name of the other database, oid of the table there, whether the mirror has rows.
SELECT pgt_id, origin_key, origin_server, origin_database::text, origin_relid::int8, is_stored
FROM pgtrickle.pgt_mirrors
ORDER BY pgt_id
