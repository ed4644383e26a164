-- Refreshes name tables, views and types in their statements. The owner of a schema can drop what is in it, also tables of the keeper, and
-- create something else of that name: a view or a trigger that would run with the privileges of the keeper. Therefore a refresh locks what
-- it names, and then compares the oids: nobody can drop or rename a locked relation before the transaction ends.
--
-- What these functions read of names is of now, not of the snapshot of the transaction: to_regclass() and the like see what has been committed.

-- The table that a stream table is stored in. Lock: that of INSERT, UPDATE and DELETE; it conflicts with CREATE TRIGGER as well.
CREATE OR REPLACE FUNCTION pgtrickle._hold_storage(id bigint, relid oid, schema_name name, table_name name) RETURNS bool
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    qualified CONSTANT text := format('%I.%I', schema_name, table_name);
BEGIN
    IF schema_name = 'pgtrickle_changes' THEN
        RETURN true;  -- only the keeper creates tables there
    END IF;
    IF to_regclass(qualified) IS DISTINCT FROM relid::regclass THEN
        RETURN false;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %s IN ROW EXCLUSIVE MODE', qualified);
    RETURN to_regclass(qualified) IS NOT DISTINCT FROM relid::regclass;
END
$$;
COMMENT ON FUNCTION pgtrickle._hold_storage(bigint, oid, name, name) IS
'Internal. Locks the table that a stream table is stored in until the end of the transaction; false if another relation has its name.';

CREATE OR REPLACE FUNCTION pgtrickle._hold_storage(id bigint) RETURNS bool
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce((SELECT pgtrickle._hold_storage(st.pgt_id, st.pgt_relid, st.pgt_schema, st.pgt_name)
                     FROM pgtrickle.pgt_stream_tables AS st
                     WHERE st.pgt_id = id), false)
$$;
COMMENT ON FUNCTION pgtrickle._hold_storage(bigint) IS 'Internal. The same by the number of the stream table.';

-- Which relations that a query reads others than their owners can replace: whatever is in a schema of another role, above all stream tables,
-- which the keeper owns; and views. The owner of a table whose role was granted to the keeper is trusted (docs/explain/security.md).
-- 10: the role that initialized the cluster; 6171: pg_database_owner.
CREATE OR REPLACE FUNCTION pgtrickle._is_replaceable(relid oid) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT EXISTS (SELECT
                   FROM pg_class AS c
                   JOIN pg_namespace AS n ON n.oid = c.relnamespace
                   WHERE c.oid = relid AND n.nspname <> 'pgtrickle_changes'
                     AND (c.relkind = 'v' OR (c.relkind IN ('r', 'p') AND n.nspowner NOT IN (10, 6171, c.relowner))))
$$;
COMMENT ON FUNCTION pgtrickle._is_replaceable(oid) IS
'Internal. Whether a role that does not own a table can put another relation in its place; or a view, which its owner can replace.';

CREATE OR REPLACE FUNCTION pgtrickle._hold_names(ids bigint[]) RETURNS TABLE (pgt_id bigint, is_held bool, names_types bool)
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relations CONSTANT text := (
        SELECT string_agg(DISTINCT format('%I.%I', d.source_schema, d.source_name), ', ')
        FROM pgtrickle.pgt_dependencies AS d
        WHERE d.pgt_id = ANY (ids) AND d.source_schema IS NOT NULL AND pgtrickle._is_replaceable(d.source_relid)
          AND to_regclass(format('%I.%I', d.source_schema, d.source_name)) = d.source_relid::regclass);
BEGIN
    -- A session learns what others have committed when it takes a lock that it does not hold yet; until then it would look names up in its
    -- caches, while the statement of the refresh may run in a session that knows more. The error releases the lock, for the next call.
    BEGIN
        LOCK TABLE ONLY pgtrickle.pgt_names IN ROW SHARE MODE;
        RAISE SQLSTATE 'PTREL';
    EXCEPTION WHEN SQLSTATE 'PTREL' THEN
        NULL;
    END;
    IF relations IS NOT NULL THEN
        BEGIN
            EXECUTE format('LOCK TABLE ONLY %s IN ACCESS SHARE MODE', relations);
        EXCEPTION WHEN insufficient_privilege THEN
            -- The owner of a view may read only some columns of a table below it, which does not suffice for LOCK. Its name is compared.
            NULL;
        END;
    END IF;
    RETURN QUERY
        SELECT t.id,
               NOT EXISTS (
                   SELECT
                   FROM pgtrickle.pgt_dependencies AS d
                   JOIN pg_class AS c ON c.oid = d.source_relid
                   WHERE d.pgt_id = t.id AND d.source_schema IS NOT NULL
                     AND to_regclass(format('%I.%I', d.source_schema, d.source_name)) IS DISTINCT FROM d.source_relid::regclass
               )
               AND NOT EXISTS (
                   SELECT
                   FROM pgtrickle.pgt_names AS k
                   JOIN pg_type AS y ON y.oid = k.objid
                   WHERE k.pgt_id = t.id AND k.classid = 'pg_type'::regclass
                     AND to_regtype(nullif(pgtrickle._name_of(k.classid, k.objid, 0), '???')) IS DISTINCT FROM k.objid::regtype
               )
               AND NOT EXISTS (
                   SELECT
                   FROM pgtrickle.pgt_names AS k
                   WHERE k.pgt_id = t.id AND pgtrickle._is_called_otherwise(k.classid, k.objid, k.objsubid, k.name)
               ),
               EXISTS (SELECT FROM pgtrickle.pgt_names AS k WHERE k.pgt_id = t.id AND k.classid IN ('pg_type'::regclass, 'pg_class'::regclass))
        FROM unnest(ids) AS t(id);
END
$$;
COMMENT ON FUNCTION pgtrickle._hold_names(bigint[]) IS
'Internal. Locks the replaceable relations that stream tables read until the end of the transaction. is_held: false if a name now means something else '
'than in the snapshot. names_types: the query names types, which cannot be locked.';
