"""Code that a query calls: functions, operators, aggregates, and what they are taken for."""

from __future__ import annotations

from tests.security.attempt import TICK, Attempt, hostile, st

NOT_TRUSTED = r"evil\."
COUNT = "CREATE FUNCTION evil.step(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT coalesce($1, 0) + coalesce($2, 0)'"


def _aggregate(name: str, tries: str, definition: str, query: str, *functions: str) -> Attempt:
    made = f"CREATE AGGREGATE evil.agg(int) ({definition})"
    return Attempt(name, tries, (*functions, made, st(query), TICK), NOT_TRUSTED)


ATTEMPTS = (
    Attempt(
        "function",
        "a function that claims to be immutable",
        (hostile("f"), st("SELECT id, evil.f(label) AS t FROM app.open"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "function_of_constants",
        "one that is folded when it is planned",
        (hostile("f"), st("SELECT evil.f('x') AS t"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "function_in_where",
        "one in a condition, cheap, so that it is asked first",
        (
            hostile("f", returns="bool", result="true"),
            "ALTER FUNCTION evil.f(text) COST 0.0001",
            st("SELECT id FROM app.open WHERE evil.f(label)"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "inlined",
        "an SQL function, which the planner puts into the query",
        (
            "CREATE FUNCTION evil.f(text) RETURNS text LANGUAGE sql STABLE AS $$ SELECT evil.payload('inlined') || $1 $$",
            st("SELECT id, evil.f(label) AS t FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "inlined_with_body",
        "an SQL function with a parsed body",
        (
            "CREATE FUNCTION evil.f(a text) RETURNS text LANGUAGE sql IMMUTABLE BEGIN ATOMIC SELECT evil.payload('atomic') || a; END",
            st("SELECT id, evil.f(label) AS t FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "inlined_table",
        "an SQL function that returns rows, in FROM",
        (
            "CREATE FUNCTION evil.f() RETURNS TABLE (t text) LANGUAGE sql STABLE AS $$ SELECT evil.payload('rows') $$",
            st("SELECT o.id, f.t FROM app.open AS o, evil.f() AS f"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "sql_function_that_writes",
        "an IMMUTABLE SQL function that writes",
        (
            "CREATE FUNCTION evil.f() RETURNS int LANGUAGE sql IMMUTABLE AS $$ GRANT SELECT ON app.secret TO mallory; SELECT 1 $$",
            st("SELECT id, evil.f() AS n FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED + "|non-volatile|not allowed",
    ),
    Attempt(
        "plan_folds",
        "explain_query plans, and planning folds constants",
        (hostile("f"), "SELECT pgtrickle._ask_plan($$SELECT evil.f('x') AS t$$, 'evil')", TICK),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "plan_folds_domain",
        "the same by a domain's CHECK",
        (
            hostile("chk", returns="bool", result="true"),
            "CREATE DOMAIN evil.dom AS text CHECK (evil.chk(VALUE))",
            "SELECT pgtrickle._ask_plan($$SELECT 'x'::evil.dom AS t$$, 'evil')",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "validate_folds",
        "validate_query asks for the plan",
        (hostile("f"), "SELECT * FROM pgtrickle.validate_query($$SELECT evil.f('x') AS t$$)", TICK),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "plan_of_secrets",
        "a plan of a query that the asker may not read",
        (
            "SELECT pgtrickle._ask_plan('SELECT word FROM app.secret', 'app')",
            TICK,
            "SELECT (pgtrickle._take_plan(g, true)).* FROM generate_series(1, 200) AS g",
        ),
        maybe="permission denied",
    ),
    Attempt(
        "plan_with_more_than_a_query",
        "a plan of two statements",
        ("SELECT pgtrickle._ask_plan('SELECT 1 AS a; GRANT SELECT ON app.secret TO mallory', 'evil')", TICK),
    ),
    Attempt(
        "plan_path",
        "the search_path of a question is not one",
        (
            "SELECT pgtrickle._ask_plan('SELECT 1 AS a', 'evil'', true); GRANT SELECT ON app.secret TO mallory; --')",
            TICK,
        ),
    ),
    Attempt(
        "operator",
        "an operator of the attacker",
        (
            hostile("eq", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq)",
            st("SELECT id FROM app.open WHERE id OPERATOR(evil.===) 1"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "operator_shadows",
        "an operator called = that is found first",
        (
            hostile("eq", "text, text", "bool", "true"),
            "CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.eq)",
            "SET search_path = evil, pg_catalog",
            st("SELECT id FROM app.open WHERE label = 'x'"),
            st("SELECT a.id FROM app.open AS a JOIN app.open AS b USING (label)", "evil.st2"),
            "RESET search_path",
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "operator_shadows_the_service",
        "operators and functions for what the service itself writes, in a path of the author's",
        (
            hostile("eq", "oid, oid", "bool", "true"),
            "CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.eq)",
            hostile("format", "text, VARIADIC text[]"),
            hostile("quote_ident"),
            "ALTER ROLE mallory SET search_path = evil, pg_catalog",
            "SET search_path = evil, pg_catalog",
            st("SELECT id, label FROM app.open"),
            "RESET search_path",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "operator_negator",
        "an operator over a built-in function whose NEGATOR is hostile: NOT (a === b) is planned as it",
        (
            hostile("ne", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq, NEGATOR = OPERATOR(evil.!==))",
            "CREATE OPERATOR evil.!== (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.ne, NEGATOR = OPERATOR(evil.===))",
            st("SELECT id FROM app.open WHERE NOT (id OPERATOR(evil.===) n)"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "operator_commutator",
        "an operator over a built-in function whose COMMUTATOR is hostile",
        (
            hostile("gt", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.<<< (LEFTARG = int, RIGHTARG = int, FUNCTION = int4lt, COMMUTATOR = OPERATOR(evil.>>>))",
            "CREATE OPERATOR evil.>>> (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.gt, COMMUTATOR = OPERATOR(evil.<<<))",
            st(
                "SELECT a.id FROM app.open AS a JOIN app.open AS b ON 3 OPERATOR(evil.<<<) a.id AND a.id OPERATOR(evil.<<<) b.id"
            ),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "operator_replaced",
        "an operator over a built-in function is dropped and made anew, hostile",
        (
            hostile("eq", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)",
            st("SELECT id FROM app.open WHERE id OPERATOR(evil.===) n"),
            TICK,
            "DROP OPERATOR evil.=== (int, int)",
            "CREATE OPERATOR evil.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq)",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "operator_scalar_array",
        "= ANY with an operator of the attacker",
        (
            hostile("eq", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq)",
            st("SELECT id FROM app.open WHERE id OPERATOR(evil.===) ANY ('{1,2,3}'::int[])"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "operator_row",
        "a row comparison with an operator of the attacker",
        (
            hostile("eq", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.eq)",
            "SET search_path = evil, pg_catalog",
            st("SELECT id FROM app.open WHERE (id, n) IN (SELECT id, n FROM app.open)"),
            st(
                "SELECT id, CASE n WHEN 1 THEN 'a' END AS w, NULLIF(id, n) AS u FROM app.open WHERE id IS DISTINCT FROM n",
                "evil.st2",
            ),
            "RESET search_path",
            TICK,
        ),
        NOT_TRUSTED,
        "row comparison operator",
    ),
    Attempt(
        "aggregate",
        "an aggregate whose state function is hostile",
        (
            "CREATE FUNCTION evil.step(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil.payload('step'); RETURN $2; END $$",
            "CREATE AGGREGATE evil.agg(int) (SFUNC = evil.step, STYPE = int)",
            st("SELECT n, evil.agg(id) AS a FROM app.open GROUP BY n"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    _aggregate(
        "aggregate_final",
        "an aggregate of built-ins with a hostile final function",
        "SFUNC = int4pl, STYPE = int, INITCOND = '0', FINALFUNC = evil.fin",
        "SELECT n, evil.agg(id) AS a FROM app.open GROUP BY n",
        hostile("fin", "int", "int", "$1"),
    ),
    _aggregate(
        "aggregate_combine",
        "an aggregate of built-ins with a hostile combine function, for parallel plans",
        "SFUNC = int4pl, STYPE = int, INITCOND = '0', COMBINEFUNC = evil.comb, PARALLEL = SAFE",
        "SELECT n, evil.agg(id) AS a FROM app.open GROUP BY n",
        hostile("comb", "int, int", "int", "$1"),
    ),
    _aggregate(
        "aggregate_moving",
        "an aggregate of built-ins with hostile functions for moving frames",
        "SFUNC = int4pl, STYPE = int, INITCOND = '0', MSFUNC = int4pl, MINVFUNC = evil.inv, MSTYPE = int, MINITCOND = '0', MFINALFUNC = evil.fin",
        "SELECT id, evil.agg(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM app.open",
        hostile("inv", "int, int", "int", "$1 - $2", "IMMUTABLE STRICT"),
        hostile("fin", "int", "int", "$1"),
    ),
    Attempt(
        "aggregate_ordered_set",
        "an ordered-set aggregate",
        (
            "CREATE FUNCTION evil.step(int, int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil.payload('ordered'); RETURN $2; END $$",
            "CREATE AGGREGATE evil.agg(ORDER BY int) (SFUNC = evil.step, STYPE = int)",
            st("SELECT n, evil.agg() WITHIN GROUP (ORDER BY id) AS a FROM app.open GROUP BY n"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "aggregate_shadows",
        "an aggregate called sum that is found first",
        (
            "CREATE FUNCTION evil.step(int8, int) RETURNS int8 LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM evil.payload('sum'); RETURN $1; END $$",
            "CREATE AGGREGATE evil.sum(int) (SFUNC = evil.step, STYPE = int8, INITCOND = '0')",
            "SET search_path = evil, pg_catalog",
            st("SELECT n, sum(id) AS a FROM app.open GROUP BY n"),
            "RESET search_path",
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "aggregate_sort_operator",
        "an aggregate of built-ins with a sort operator of the attacker",
        (
            hostile("lt", "int, int", "bool", "true"),
            "CREATE OPERATOR evil.<<< (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.lt)",
            "CREATE AGGREGATE evil.agg(int) (SFUNC = int4smaller, STYPE = int, SORTOP = OPERATOR(evil.<<<))",
            st("SELECT evil.agg(id) AS a FROM app.open"),
            TICK,
        ),
        maybe=NOT_TRUSTED + "|sort operator|ordering operator",
    ),
    Attempt(
        "aggregate_replaced",
        "an aggregate of built-ins alone is replaced by a hostile one",
        (
            hostile("fin", "int", "int", "$1"),
            "CREATE AGGREGATE evil.agg(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0')",
            st("SELECT n, evil.agg(id) AS a FROM app.open GROUP BY n"),
            TICK,
            "CREATE OR REPLACE AGGREGATE evil.agg(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0', FINALFUNC = evil.fin)",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "window_frame_support",
        "RANGE with an offset looks up a support function",
        (st("SELECT id, sum(n) OVER (ORDER BY id RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS a FROM app.open"), TICK),
    ),
    Attempt(
        "function_given_away",
        "a function is given to the service, which then would trust it",
        (
            hostile("f"),
            'ALTER FUNCTION evil.f(text) OWNER TO "{service}"',
            st("SELECT id, evil.f(label) AS t FROM app.open"),
            TICK,
        ),
        r"must be (able to SET ROLE|member of role)|evil\.f",
    ),
    Attempt(
        "function_in_trusted_extension",
        "a function becomes a member of an extension that may be trusted",
        (
            hostile("f"),
            "ALTER EXTENSION hstore ADD FUNCTION evil.f(text)",
            st("SELECT id, evil.f(label) AS t FROM app.open"),
            TICK,
        ),
        r"must be owner of extension|evil\.f",
    ),
    Attempt(
        "own_extension",
        "a trusted extension that the attacker creates itself belongs to it in part",
        (
            "CREATE EXTENSION citext SCHEMA evil",
            st("SELECT id, label::evil.citext AS c FROM app.open"),
            TICK,
            "CREATE OR REPLACE FUNCTION evil.citext_eq(evil.citext, evil.citext) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN PERFORM evil.payload('citext'); RETURN true; END $$",
            TICK,
        ),
        r"permission denied|must be owner|evil\.",
    ),
    Attempt(
        "text_search_dictionary",
        "a dictionary and configuration of the attacker, whose file is elsewhere",
        (
            "CREATE TEXT SEARCH CONFIGURATION evil.cfg (COPY = pg_catalog.simple)",
            "CREATE TEXT SEARCH DICTIONARY evil.dict (TEMPLATE = pg_catalog.synonym, SYNONYMS = '../../../../../canary')",
            st("SELECT id, to_tsvector('evil.cfg', label) AS v FROM app.open"),
            TICK,
            "ALTER TEXT SEARCH CONFIGURATION evil.cfg ALTER MAPPING FOR asciiword WITH pg_catalog.english_stem",
            TICK,
        ),
        maybe=r"invalid text search configuration file name|permission denied|evil\.|could not open",
    ),
    Attempt(
        "deputy",
        "a SECURITY DEFINER function of the owner of the secrets, called by the service",
        (st("SELECT id, app.lookup(id) AS n FROM app.open"), TICK),
        r"app\.lookup",
    ),
    Attempt(
        "secret_function",
        "a function that the attacker may not execute",
        (st("SELECT id, app.secret_word() AS w FROM app.open"), TICK),
        "permission denied for function",
    ),
    Attempt(
        "function_default",
        "a default argument is put in when the query is planned",
        (
            hostile("g", ""),
            "CREATE FUNCTION evil.f(a text, b text DEFAULT evil.g()) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1'",
            st("SELECT id, evil.f(label) AS t FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "function_in_limit",
        "functions in LIMIT, ORDER BY, VALUES, a CTE, a subquery and a JOIN condition",
        (
            hostile("f", "", "int", "3"),
            st("SELECT id FROM app.open ORDER BY id LIMIT evil.f()"),
            st("SELECT id FROM app.open ORDER BY evil.f(), id LIMIT 3", "evil.st2"),
            st(
                "WITH w AS MATERIALIZED (SELECT evil.f() AS x) SELECT id FROM app.open WHERE n < (SELECT x FROM w)",
                "evil.st3",
            ),
            st("SELECT id FROM app.open JOIN (VALUES (evil.f())) AS v(x) ON v.x = n", "evil.st4"),
            st(
                "SELECT id FROM app.open AS o LEFT JOIN LATERAL (SELECT evil.f() WHERE o.n = 1) AS l(x) ON l.x > evil.f()",
                "evil.st5",
            ),
            st("SELECT count(*) FILTER (WHERE evil.f() = 3) AS a FROM app.open HAVING evil.f() = 3", "evil.st6"),
            st(
                "SELECT id, grouping(n) AS g, count(*) AS c FROM app.open GROUP BY id, ROLLUP (n, evil.f())", "evil.st7"
            ),
            st("SELECT DISTINCT ON (evil.f()) id FROM app.open ORDER BY evil.f(), id", "evil.st8"),
            st("SELECT id, row_number() OVER (PARTITION BY evil.f() ORDER BY id) AS r FROM app.open", "evil.st9"),
            st("SELECT id FROM app.open TABLESAMPLE system (evil.f()) REPEATABLE (1)", "evil.st10"),
            st("SELECT (ARRAY[1, 2, 3, 4])[evil.f()] AS a, COALESCE(NULL, evil.f()) AS b FROM app.open", "evil.st11"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
)
