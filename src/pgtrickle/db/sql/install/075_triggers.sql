-- Which capture triggers a table has to have. The one place that names them.

CREATE OR REPLACE FUNCTION pgtrickle._wanted_triggers(source oid, relkind "char")
RETURNS TABLE (tgname text, state "char", event text, label text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('pgtrickle_%s_%s', source, w.suffix), w.state::"char", w.event, w.label
    FROM (VALUES
        ('i', 'O', 'AFTER INSERT ON %s REFERENCING NEW TABLE AS pgt_new FOR EACH STATEMENT', 'INSERT'),
        ('u', 'O', 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS pgt_old NEW TABLE AS pgt_new FOR EACH STATEMENT', 'UPDATE'),
        ('d', 'O', 'AFTER DELETE ON %s REFERENCING OLD TABLE AS pgt_old FOR EACH STATEMENT', 'DELETE'),
        ('t', 'A', 'AFTER TRUNCATE ON %s FOR EACH STATEMENT', 'TRUNCATE'),
        ('r', 'R', 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW', 'REPLICA')
    ) AS w(suffix, state, event, label)
    -- row triggers of a partitioned table would be cloned; its partitions get their own
    WHERE w.suffix <> 'r' OR relkind = 'r'
$$;
COMMENT ON FUNCTION pgtrickle._wanted_triggers(oid, "char") IS
'Internal. Capture triggers of one table: statement triggers while session_replication_role is origin or local, row triggers when it is replica, TRUNCATE always.';
