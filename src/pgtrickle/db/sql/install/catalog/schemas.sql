-- The two schemas. No role can use what is in them until the DBA grants USAGE on pgtrickle.
CREATE SCHEMA IF NOT EXISTS pgtrickle;
CREATE SCHEMA IF NOT EXISTS pgtrickle_changes;
REVOKE ALL ON SCHEMA pgtrickle FROM PUBLIC;
REVOKE ALL ON SCHEMA pgtrickle_changes FROM PUBLIC;

COMMENT ON SCHEMA pgtrickle IS
'Stream tables: catalog, functions and views of pgtrickle.
To let a role create and watch stream tables: GRANT USAGE ON SCHEMA pgtrickle TO role. That is all: the functions check the caller''s own privileges
(SELECT on what the query reads, CREATE on the target schema), and every role with USAGE may see definitions and states of all stream tables. Reasons and
error messages of refreshes can quote rows: they are shown to roles that may SELECT from the stream table, to its creator and to the role that installed.
The service role, which owns this schema, must own the source tables, or be a member of the roles that own them; a query of a role that it is a member of
may call code of its own, which runs as that role. It needs CREATE on the schemas where stream tables are created.';
COMMENT ON SCHEMA pgtrickle_changes IS
'Change buffers, capture functions and hidden state of pgtrickle. Private to the service role; grant nothing here.';
