-- A function of this session that runs statements with the rights of its owner: run as the role whose code is to be run, so that it is the owner. It is gone with
-- the transaction. author: the role, to be sure; first: statements to begin with; query: what is returned. RETURN QUERY has all of the result before the function ends:
-- a cursor would go on with the query after it, with the rights of the session.
CREATE FUNCTION pg_temp.__pgt_run(author text, first text[], query text) RETURNS SETOF record
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    command text;
BEGIN
    IF current_user <> author THEN
        RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege', MESSAGE = format('this is run as %I, not as %I', current_user, author);
    END IF;
    FOREACH command IN ARRAY first LOOP
        EXECUTE command;
    END LOOP;
    RETURN QUERY EXECUTE query;
END
$$
