-- A temporary function that runs statements with the privileges of its owner: execute this as the author, so that the author owns it. It is dropped
-- with the transaction. author: the role, for a check; first: statements to run first; query: its rows are returned. RETURN QUERY computes the whole
-- result before the function returns: a cursor would continue the query afterwards, with the privileges of the session.
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
