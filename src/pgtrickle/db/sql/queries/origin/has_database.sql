-- Whether the server has a database. %(name)s. Returns: one boolean.
SELECT EXISTS (SELECT FROM pg_catalog.pg_database AS d WHERE d.datname = %(name)s)
