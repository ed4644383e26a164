-- Makes a stream table a plain table. Placeholder: table (quoted qualified name). Returns nothing.
-- A hidden column that a view outputs stays.
DO $release$
BEGIN
    COMMENT ON TABLE %(table)s IS NULL;
    ALTER TABLE %(table)s DROP COLUMN IF EXISTS __pgt_row_id;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
$release$
