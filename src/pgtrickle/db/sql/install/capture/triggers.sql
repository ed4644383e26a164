-- The capture triggers that a table must have (the only list of them), the check that their functions call (_intact), and moves of rows
-- between partitions (ADR 42).

-- A row is inserted when a row of a table moves, and deleted by the capture function of the same statement. A crash truncates the table.
CREATE UNLOGGED TABLE IF NOT EXISTS pgtrickle_changes.moves (xid xid8 NOT NULL, source oid NOT NULL, old_key text NOT NULL, new_key text NOT NULL);
CREATE INDEX IF NOT EXISTS moves_xid ON pgtrickle_changes.moves (xid);
COMMENT ON TABLE pgtrickle_changes.moves IS
'Rows that statements which have not ended moved to another partition of a captured table: the values that decide on the partition, before and after.';

-- Called by conditions of triggers, so with the privileges of every role that writes.
CREATE OR REPLACE FUNCTION pgtrickle_changes._note_move(source oid, old_key text, new_key text) RETURNS bool
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO pgtrickle_changes.moves (xid, source, old_key, new_key)
    VALUES (pg_catalog.pg_current_xact_id(), _note_move.source, _note_move.old_key, _note_move.new_key);
    RETURN false;
END
$$;
COMMENT ON FUNCTION pgtrickle_changes._note_move(oid, text, text) IS
'Internal. Notes that a row of a captured table has moved to another partition. Returns false: the trigger whose condition calls it is not to be called.';

CREATE OR REPLACE FUNCTION pgtrickle._routing_columns(source oid) RETURNS int2[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(array_agg(DISTINCT own.attnum ORDER BY own.attnum), '{}')
    FROM pgtrickle._family(source) AS f
    JOIN pg_depend AS d ON d.classid = 'pg_class'::regclass AND d.objid = f.relid AND d.objsubid > 0
                       AND d.refclassid = 'pg_class'::regclass AND d.refobjid = f.relid AND d.refobjsubid = 0 AND d.deptype = 'i'
    JOIN pg_attribute AS a ON a.attrelid = f.relid AND a.attnum = d.objsubid
    JOIN pg_attribute AS own ON own.attrelid = source AND own.attname = a.attname AND NOT own.attisdropped
    WHERE f.relkind = 'p'
      AND current_setting('server_version_num')::int >= 150000
      AND NOT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = source)
$$;
COMMENT ON FUNCTION pgtrickle._routing_columns(oid) IS
'Internal. The columns in the partition keys of a captured table and its partitions, where MERGE (PostgreSQL 15) can move rows that no statement trigger '
'sees. Empty for tables that are not partitioned, and for partitions, whose row triggers see such rows.';

CREATE OR REPLACE FUNCTION pgtrickle._wanted_triggers(source oid, relkind "char")
RETURNS TABLE (tgname text, state "char", event text, label text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('pgtrickle_%s_%s', source, w.suffix), CASE WHEN own.is_child THEN 'A' ELSE w.state END::"char", w.event, w.label
    FROM (SELECT EXISTS (SELECT FROM pg_inherits AS i WHERE i.inhrelid = source) AS is_child,
                 CASE WHEN relkind = 'p' THEN pgtrickle._routing_columns(source) ELSE '{}' END AS routing) AS own
    CROSS JOIN LATERAL (VALUES
        ('i', 'O', 'AFTER INSERT ON %s REFERENCING NEW TABLE AS pgt_new FOR EACH STATEMENT', 'INSERT'),
        ('u', 'O', 'AFTER UPDATE ON %s REFERENCING OLD TABLE AS pgt_old NEW TABLE AS pgt_new FOR EACH STATEMENT', 'UPDATE'),
        ('d', 'O', 'AFTER DELETE ON %s REFERENCING OLD TABLE AS pgt_old FOR EACH STATEMENT', 'DELETE'),
        ('t', 'A', 'AFTER TRUNCATE ON %s FOR EACH STATEMENT', 'TRUNCATE'),
        ('r', 'R', 'AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW', 'REPLICA'),
        -- PostgreSQL evaluates the condition for a row that moves once, with the table that the statement names, whose images belong to no table: ADR 42.
        -- Partitions have clones of it, also those of the future; capture disables them in partitions without partitions, where the condition is
        -- never true and costs each UPDATE 10 us. Another partition key is another trigger.
        ('m' || substr(md5(own.routing::text), 1, 6), 'O', (
            SELECT format('AFTER UPDATE ON %%s FOR EACH ROW WHEN (CASE WHEN OLD.tableoid OPERATOR(pg_catalog.=) ''0''::pg_catalog.oid '
                          'THEN pgtrickle_changes._note_move(''%s''::pg_catalog.oid, ROW(%s)::pg_catalog.text, ROW(%s)::pg_catalog.text) ELSE false END)',
                          source, string_agg('OLD.' || c.name, ', ' ORDER BY a.attnum), string_agg('NEW.' || c.name, ', ' ORDER BY a.attnum))
            FROM pg_attribute AS a
            CROSS JOIN LATERAL (SELECT replace(quote_ident(a.attname), '%', '%%') AS name) AS c
            WHERE a.attrelid = source AND a.attnum = ANY (own.routing)
        ), 'MOVE')
    ) AS w(suffix, state, event, label)
    -- other row triggers of a partitioned table would be cloned, too; its partitions get their own
    WHERE (w.suffix <> 'r' OR relkind = 'r') AND (w.suffix IN ('r', 't') OR NOT own.is_child) AND (w.label <> 'MOVE' OR own.routing <> '{}')
$$;
COMMENT ON FUNCTION pgtrickle._wanted_triggers(oid, "char") IS
'Internal. Capture triggers of one table: statement triggers while session_replication_role is origin or local, row triggers when it is replica, '
'TRUNCATE always; and one for rows that MERGE moves to another partition. A source that is itself a partition or a child has row triggers, '
'always: statements that name its parent write to it, too, and fire no statement trigger of it.';

-- Declared IMMUTABLE although it reads the catalog: with constant arguments the planner evaluates it once and keeps the result in the
-- plan, and as one of them is a regclass, the plan is invalidated whenever that table is altered.
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
