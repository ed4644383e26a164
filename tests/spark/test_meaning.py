"""Types with an equality of their own, through loads and changes: what the author's own session returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg
import pytest

from pgtrickle.db import connect, install
from pgtrickle.define import operators
from pgtrickle.define.operators import ResolvedQuery
from pgtrickle.maintain.oracle import AS_OF_TYPED, AS_TYPED, TEXT_DIFFERS
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database, prepare_server
from tests.line import Line
from tests.security import postgres15

MakeLine = Callable[..., Line]

SCHEMA = """
CREATE SCHEMA ext; CREATE SCHEMA "My Data"; GRANT USAGE ON SCHEMA ext TO app; GRANT ALL ON SCHEMA "My Data" TO app;
CREATE EXTENSION citext SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext; CREATE EXTENSION ltree SCHEMA ext;
CREATE EXTENSION vector SCHEMA ext;
CREATE DOMAIN ext.mail AS ext.citext;
-- a type with a class of operators of its own: text without regard to its first letter
CREATE TYPE ext.tail;
CREATE FUNCTION ext.tail_in(cstring) RETURNS ext.tail LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION ext.tail_out(ext.tail) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE ext.tail (INPUT = ext.tail_in, OUTPUT = ext.tail_out, LIKE = text);
CREATE CAST (ext.tail AS text) WITHOUT FUNCTION AS IMPLICIT;
"""
COMPARISONS = {"lt": "<", "le": "<=", "eq": "=", "ge": ">=", "gt": ">", "ne": "<>"}

# What is kept from changes, and what only FULL follows.
DIFFERENTIAL = {
    "using": 'SELECT a.id, b.id AS b_id FROM a JOIN "B" b USING (v)',
    "left": 'SELECT v, a.id, b.id AS b_id FROM a LEFT JOIN "B" b USING (v)',
    "full": 'SELECT v, a.id, b.id AS b_id FROM a FULL JOIN "B" b USING (v)',
    "three": 'SELECT v, a.id, b.id AS b_id, c.id AS c_id FROM a FULL JOIN "B" b USING (v) FULL JOIN a c USING (v)',
    "natural": 'SELECT * FROM a NATURAL JOIN "B"',
    "in": 'SELECT id, v FROM a WHERE v IN (SELECT v FROM "B")',
    "not_in": 'SELECT id FROM a WHERE v NOT IN (SELECT v FROM "B" WHERE v IS NOT NULL)',
    "exists": 'SELECT id FROM a WHERE NOT EXISTS (SELECT FROM "B" b WHERE b.v = a.v)',
    "differs": 'SELECT a.id, b.id AS b_id FROM a, "B" b WHERE a.v IS NOT DISTINCT FROM b.v AND a.id <= b.id',
    "nothing": 'SELECT a.id, NULLIF(a.v, b.v) AS n FROM a JOIN "B" b ON a.id = b.id',
    "cases": 'SELECT a.id, CASE a.v WHEN b.v THEN 1 ELSE 2 END AS n FROM a JOIN "B" b ON a.id = b.id',
    "counted": "SELECT id, count(v) AS n, count(DISTINCT v) AS d FROM a GROUP BY id",
    "grouped": "SELECT v, count(*) AS n FROM a GROUP BY v",
    "asked": 'SELECT a.id, (SELECT count(*) FROM "B" b WHERE b.v = a.v) AS n FROM a',
}
EITHER = {
    "distinct_": "SELECT DISTINCT v FROM a",
    "united": 'SELECT v FROM a UNION SELECT v FROM "B"',
    "common": 'SELECT v FROM a INTERSECT SELECT v FROM "B"',
    "rest": 'SELECT v FROM a EXCEPT ALL SELECT v FROM "B"',
    "rolled": "SELECT v, id, count(*) AS n FROM a GROUP BY ROLLUP (v, id)",
    "rows_in": 'SELECT id FROM a WHERE (id, v) IN (SELECT id, v FROM "B")',
    "windows": "SELECT id, v, count(*) OVER (PARTITION BY v) AS n FROM a",
    "below": 'SELECT g.n, b.id FROM (SELECT v, count(*) AS n FROM a GROUP BY v) AS g JOIN "B" b USING (v)',
    "once": "SELECT DISTINCT ON (v) v FROM a ORDER BY v",
    "above": "SELECT v, id FROM seen",
}
VALUES = {
    "citext": ("A@x", "a@X", "b", "B", "c"),
    "mail": ("A@x", "a@X", "b", "B", "c"),
    "tail": ("A@x", "b@x", "b", "c", "xc"),
    "hstore": ("a=>1, b=>2", "b=>2,a=>1", "a=>1", "", "c=>NULL"),
    "ltree": ("a.b", "a.b", "a", "a.B", "c"),
    "citext[]": ("{A,b}", "{a,B}", "{x}", "{}", "{NULL}"),
    "numrange": ("[1,2)", "[1.0,2.0)", "[3,4)", "empty", "(,)"),
    "interval": ("1 day", "24:00", "1 mon", "30 days", "0"),
    "vector": ("[1,2]", "[1.0,2]", "[0,0]", "[-0,0]", "[2,1]"),
    "jsonb": ("1", "1.0", '{"a": 1}', '{"a": 1.00}', "null"),
}


def make_tail(database: Database) -> None:
    for name, operator in COMPARISONS.items():
        database.superuser_sql(
            f"CREATE FUNCTION ext.tail_{name}(ext.tail, ext.tail) RETURNS bool LANGUAGE sql IMMUTABLE STRICT AS "
            f"$$SELECT substr($1::text, 2) {operator} substr($2::text, 2)$$; "
            f"CREATE OPERATOR ext.{operator} (LEFTARG = ext.tail, RIGHTARG = ext.tail, FUNCTION = ext.tail_{name}"
            f"{', HASHES, MERGES' if operator == '=' else ''})"
        )
    database.superuser_sql(
        "CREATE FUNCTION ext.tail_cmp(ext.tail, ext.tail) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS "
        "$$SELECT bttextcmp(substr($1::text, 2), substr($2::text, 2))$$; "
        "CREATE FUNCTION ext.tail_hash(ext.tail) RETURNS int LANGUAGE sql IMMUTABLE STRICT AS "
        "$$SELECT hashtext(substr($1::text, 2))$$; "
        "CREATE OPERATOR CLASS ext.tail_ops DEFAULT FOR TYPE ext.tail USING btree AS OPERATOR 1 ext.<, "
        "OPERATOR 2 ext.<=, OPERATOR 3 ext.=, OPERATOR 4 ext.>=, OPERATOR 5 ext.>, "
        "FUNCTION 1 ext.tail_cmp(ext.tail, ext.tail); "
        "CREATE OPERATOR CLASS ext.tail_hash_ops DEFAULT FOR TYPE ext.tail USING hash AS OPERATOR 1 ext.=, "
        "FUNCTION 1 ext.tail_hash(ext.tail)"
    )


@pytest.mark.parametrize("type_", VALUES)
def test_equality(installed: Database, make_line: MakeLine, type_: str) -> None:
    installed.superuser_sql(SCHEMA)
    make_tail(installed)
    check_equality(make_line(installed), type_, VALUES[type_])


def test_equality_of_a_nondeterministic_collation(make_line: MakeLine) -> None:
    """On a server with ICU, which the embedded one lacks. All of them are FULL."""
    reason = postgres15.why_not()
    if reason is not None:
        pytest.skip(reason)
    with EmbeddedPostgres.create(durable=False, home=postgres15.HOME) as server:
        prepare_server(server)
        database = create_database(server, "collated")
        with connect(database.dsn, role="install", as_service=False) as conn:
            install(conn)
        database.superuser_sql(
            'CREATE SCHEMA ext; CREATE SCHEMA "My Data"; GRANT USAGE ON SCHEMA ext TO app; '
            'GRANT ALL ON SCHEMA "My Data" TO app; '
            "CREATE COLLATION ext.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        line = make_line(database)
        check_equality(line, "text COLLATE nocase", ("A@x", "a@X", "b", "B", "c"), changes_are_followed=False)
        line.close()


def check_equality(line: Line, type_: str, values: Sequence[str], *, changes_are_followed: bool = True) -> None:
    line.sql('SET search_path = "My Data", ext')
    line.sql(f'CREATE TABLE a (id int, v {type_}); CREATE TABLE "B" (id int, v {type_})')
    line.sql('CREATE VIEW seen AS SELECT v, a.id FROM a JOIN "B" b USING (v)')
    for i, value in enumerate(values[:3]):
        line.sql("INSERT INTO a VALUES (%s, %s)", i + 1, value)
        line.sql('INSERT INTO "B" VALUES (%s, %s)', 3 - i, value)
    line.sql('INSERT INTO a VALUES (9, NULL); INSERT INTO "B" VALUES (9, NULL)')
    made = []
    for name, query in {**DIFFERENTIAL, **EITHER}.items():
        try:
            # AUTO may choose FULL where that was faster.
            mode = "DIFFERENTIAL" if name in DIFFERENTIAL and changes_are_followed else "AUTO"
            line.sql(
                "SELECT pgtrickle.create_stream_table(%s, %s, refresh_mode => %s)", f'"My Data".{name}', query, mode
            )
        except psycopg.errors.UndefinedFunction:
            assert type_ in ("hstore", "ltree", "jsonb")  # has no such operator
        except psycopg.errors.FeatureNotSupported:
            assert (type_, name) in (("vector", "full"), ("vector", "three"))  # cannot be merged or hashed
        else:
            made.append(name)
    line.tick()
    changes = [
        f"INSERT INTO a VALUES (4, '{values[3]}'), (5, '{values[1]}'), (5, '{values[0]}')",
        f"INSERT INTO \"B\" VALUES (4, '{values[1]}'), (7, NULL), (7, '{values[4]}')",
        f"UPDATE a SET v = '{values[1]}' WHERE v = '{values[0]}'",
        f"DELETE FROM \"B\" WHERE v = '{values[1]}' AND id > 2",
        "UPDATE a SET id = id + 1; DELETE FROM a WHERE v IS NULL",
    ]
    for change in ["SELECT", *changes]:
        line.sql(change)
        line.tick()
        for name in made:
            action, status, reason = line.last(f"My Data.{name}")
            assert status == "COMPLETED", (name, reason)
            assert "operator does not exist" not in str(reason)
            if name in DIFFERENTIAL and changes_are_followed and change != "SELECT":
                assert action in ("DIFFERENTIAL", "NO_DATA"), (name, reason)
            assert line.equal(f"My Data.{name}") == AS_TYPED, name


@pytest.mark.parametrize("run_as", ["service", "author"])
def test_verify_sees_a_text_that_was_rewritten_wrongly(
    installed: Database, make_line: MakeLine, monkeypatch: pytest.MonkeyPatch, run_as: str
) -> None:
    """Refreshes, and the text as of the table's cut, agree on a result that is not the author's."""
    installed.superuser_sql(SCHEMA)
    line = make_line(installed)
    if run_as == "author":
        line.sql("SELECT pgtrickle.set_option('run_as_author', 'always')")
    line.sql("SET search_path = public, ext")
    line.sql("CREATE TABLE a (id int, v citext); CREATE TABLE b (id int, v citext)")
    line.sql("INSERT INTO a VALUES (1, 'A@x'), (2, 'a@x'); INSERT INTO b VALUES (1, 'a@x')")
    query = "SELECT a.id, b.id AS b_id FROM a JOIN b USING (v)"
    line.create("good", query)
    monkeypatch.setattr(operators, "explicit", lambda _conn, text, *_: ResolvedQuery(text))
    monkeypatch.setattr(operators, "compared_otherwise", lambda *_: None)
    line.create("wrong", query)
    assert line.rows("good") == [(1, 1), (2, 1)]
    assert line.rows("wrong") == [(2, 1)]

    def verified(name: str) -> tuple[bool, int, str, str]:
        (result,) = verify_tables(line.dsn, [name], timeout_seconds=1)
        return result.ok, result.missing, result.how, result.against

    assert verified("good") == (True, 0, "quiet", AS_TYPED)
    assert verified("wrong") == (False, 1, "quiet", AS_TYPED)
    line.sql("INSERT INTO b VALUES (2, 'new')")
    assert verified("good") == (True, 0, "around", AS_OF_TYPED)
    assert verified("wrong") == (False, 1, "around", TEXT_DIFFERS)
