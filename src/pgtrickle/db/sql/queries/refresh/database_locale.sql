-- The name of the database's collation. The name of its column differs between versions.
SELECT coalesce(nullif(to_jsonb(d) ->> 'datlocale', ''), nullif(to_jsonb(d) ->> 'daticulocale', ''), d.datcollate)
FROM pg_database AS d
WHERE d.datname = current_database()
