-- USAGE on the schema is the gate (granted by the DBA). Behind it: catalogs may be read, functions may be called; those that change
-- something check the caller themselves. Helpers that only SECURITY DEFINER functions or the control plane call are closed.
REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA pgtrickle TO PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgtrickle_changes FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._store_dependencies(bigint, oid) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._authorize(bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._column_definitions(jsonb) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._alert(text, text, text) FROM PUBLIC;
REVOKE ALL ON FUNCTION pgtrickle._wake(text, bigint) FROM PUBLIC;
