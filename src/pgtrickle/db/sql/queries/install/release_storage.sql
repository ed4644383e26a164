-- Makes a stream table a plain table. Placeholders: table (quoted qualified name), name (the same as a constant). Returns nothing.
-- A hidden column that a view outputs stays.
DO $release$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = %(name)s::pg_catalog.regclass LOOP
        EXECUTE pg_catalog.format('COMMENT ON TABLE %%s IS NULL', part);
    END LOOP;
    COMMENT ON TABLE %(table)s IS NULL;
    ALTER TABLE %(table)s DROP COLUMN IF EXISTS __pgt_row_id;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
$release$
