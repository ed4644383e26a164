-- Like author_run, for the types of a query, which is parsed and not planned: planning would run functions that are declared immutable.
-- Returns for each of its columns: type, modifier, collation. Columns are renamed if their names are not unique.
CREATE FUNCTION pg_temp.__pgt_describe(author text, query text) RETURNS TABLE (typid int8, typmod int4, colloid int8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text := '';
BEGIN
    IF current_user <> author THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('this is run as %I, not as %I', current_user, author);
    END IF;
    FOR named IN 1 .. 1665 LOOP
        BEGIN
            EXECUTE format('CREATE TEMPORARY VIEW __pgt_described AS SELECT * FROM (%s) AS described%s', query, '(' || nullif(names, '') || ')');
            EXIT;
        EXCEPTION WHEN duplicate_column THEN
            names := concat_ws(', ', nullif(names, ''), '__pgt_c' || named);
        END;
    END LOOP;
    RETURN QUERY
        SELECT a.atttypid::int8, a.atttypmod, a.attcollation::int8
        FROM pg_attribute AS a
        WHERE a.attrelid = 'pg_temp.__pgt_described'::regclass AND a.attnum > 0
        ORDER BY a.attnum;
END
$$
