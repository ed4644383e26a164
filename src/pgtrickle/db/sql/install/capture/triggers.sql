-- Which capture triggers a table has to have (the one place that names them), and the guard that their functions ask.

CREATE OR REPLACE FUNCTION pgtrickle._wanted_triggers(source oid, relkind "char")
RETURNS TABLE (tgname text, state "char", event text, label text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('pgtrickle_%s_%s', source, w.suffix), CASE WHEN own.is_child THEN 'A' ELSE w.state END::"char", w.event, w.label
    FROM (VALUES
        ('i', 'O', 'AFTER INSERT ON %s REFERENCING NEW TABLE AS pgt_new FOR EACH STATEMENT', 'INSERT'),
        ('u', 'O', 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS pgt_old NEW TABLE AS pgt_new FOR EACH STATEMENT', 'UPDATE'),
        ('d', 'O', 'AFTER DELETE ON %s REFERENCING OLD TABLE AS pgt_old FOR EACH STATEMENT', 'DELETE'),
        ('t', 'A', 'AFTER TRUNCATE ON %s FOR EACH STATEMENT', 'TRUNCATE'),
        ('r', 'R', 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW', 'REPLICA')
    ) AS w(suffix, state, event, label)
    CROSS JOIN (SELECT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = source) AS is_child) AS own
    -- row triggers of a partitioned table would be cloned; its partitions get their own
    WHERE (w.suffix <> 'r' OR relkind = 'r') AND (w.suffix IN ('r', 't') OR NOT own.is_child)
$$;
COMMENT ON FUNCTION pgtrickle._wanted_triggers(oid, "char") IS
'Internal. Capture triggers of one table: statement triggers while session_replication_role is origin or local, row triggers when it is replica, '
'TRUNCATE always. A source that is itself a partition or a child has row triggers, always: statements that name its parent write to it, too, and fire no '
'statement trigger of it.';

-- Declared IMMUTABLE although it reads the catalog, because of when it is evaluated: with constants for arguments the planner calls it
-- once and keeps the answer, and since one of them is a regclass the plan is thrown away whenever that table is altered.
-- It reads the catalog as the parser does, not through the transaction's snapshot, which may be older than the table's definition.
CREATE OR REPLACE FUNCTION pgtrickle._intact(member regclass, source regclass, names name[], types oid[], numbers int2[]) RETURNS bool
LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    same bool;
BEGIN
    IF member <> source AND NOT EXISTS (SELECT FROM pgtrickle._family(source::oid) AS f WHERE f.relid = member) THEN
        RETURN false;
    END IF;
    -- Two columns of one type may have exchanged their names. Partitions and children number their columns as they like.
    IF EXISTS (SELECT FROM unnest(names, numbers) AS c(name, number)
               WHERE (pg_identify_object_as_address('pg_class'::regclass, source, c.number)).object_names[3] IS DISTINCT FROM c.name::text) THEN
        RETURN false;
    END IF;
    EXECUTE (SELECT 'SELECT ' || coalesce(string_agg(format('pg_typeof((NULL::%s).%I) = %s::oid', member, c.name, c.type), ' AND '), 'true')
             FROM unnest(names, types) AS c(name, type))
    INTO same;
    RETURN same;
EXCEPTION WHEN OTHERS THEN
    RETURN false;
END
$$;
COMMENT ON FUNCTION pgtrickle._intact(regclass, regclass, name[], oid[], int2[]) IS
'Internal. Whether a table still belongs to the family of a captured source and still has these columns with these types, and the source these numbers.';

CREATE OR REPLACE FUNCTION pgtrickle._intact(member regclass, source regclass, names name[], types oid[]) RETURNS bool
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT pgtrickle._intact(member, source, names, types, NULL)
$$;
COMMENT ON FUNCTION pgtrickle._intact(regclass, regclass, name[], oid[]) IS
'Internal. The same for capture functions of earlier versions, which do not know the numbers of their columns.';
