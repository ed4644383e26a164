"""Which code a query may reach, and who evaluates it then: the service role, the author, or nobody."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from pgtrickle.db.catalog import load_stream_tables
from pgtrickle.db.connect import connect
from pgtrickle.define.prepare import prepare
from pgtrickle.errors import PgtrickleError
from tests.conftest import Database

OURS = """
    CREATE TABLE t (id int PRIMARY KEY, s text, j jsonb, at timestamptz, amount numeric);
    CREATE TYPE mood AS ENUM ('low', 'high');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TYPE pair AS (a int, b mood);
    CREATE TABLE typed (id int PRIMARY KEY, m mood, ms mood[], p positive, c pair);
    CREATE FUNCTION ours(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
    CREATE FUNCTION wide(numeric) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
    CREATE FUNCTION of_any(anyelement) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 1';
    GRANT SELECT ON t, typed TO PUBLIC;
"""
THEIRS = """
    CREATE FUNCTION {s}.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
    CREATE FUNCTION {s}.ok(text) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
    CREATE FUNCTION {s}.ok(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT true';
    CREATE FUNCTION {s}.diff(int, int) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT 1.0::float8';
    CREATE DOMAIN {s}.clean AS text;
    CREATE DOMAIN {s}.checked AS text CHECK ({s}.ok(VALUE));
    CREATE TYPE {s}.en AS ENUM ('a', 'b');
    CREATE TYPE {s}.comp AS (a int);
    CREATE TYPE {s}.plain_range AS RANGE (SUBTYPE = int4);
    CREATE TYPE {s}.bad_range AS RANGE (SUBTYPE = int4, SUBTYPE_DIFF = {s}.diff);
    CREATE AGGREGATE {s}.total(int) (SFUNC = int4pl, STYPE = int);
    CREATE OPERATOR {s}.=== (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq);
    CREATE VIEW {s}.behind AS SELECT {s}.f(t.id) AS id FROM public.t;
"""


@dataclass
class Two:
    """The service role `app`, who owns all in public, and an author, who owns one schema."""

    db: Database
    author: psycopg.Connection[Any]

    @property
    def name(self) -> str:
        return self.author.info.user

    @property
    def schema(self) -> str:
        return f"of_{self.name}"

    def create(self, query: str) -> str:
        """Who evaluates it."""
        query = query.replace("{s}", self.schema)
        self.author.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"{self.schema}.st", query))
        ((run_as,),) = self.db.sql("SELECT run_as FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'st'")
        return str(run_as)

    def refused(self, query: str) -> tuple[str, str]:
        query = query.replace("{s}", self.schema)
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            self.author.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"{self.schema}.st", query))
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as told:
            self.author.execute("SELECT * FROM pgtrickle.validate_query(%s)", (query,)).fetchall()
        assert told.value.diag.message_primary == caught.value.diag.message_primary
        return str(caught.value.diag.message_primary), str(caught.value.diag.message_hint)

    def grant(self) -> None:
        self.db.superuser_sql(f"GRANT {self.name} TO app")

    def prepare(self) -> None:
        with connect(self.db.dsn, role="test", autocommit=True) as conn:
            (table,) = load_stream_tables(conn)
            prepare(conn, table)


@pytest.fixture
def two(installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]]) -> Iterator[Two]:
    installed.sql(OURS)
    found = Two(installed, make_role(installed))
    installed.superuser_sql(
        f"CREATE SCHEMA {found.schema} AUTHORIZATION {found.name}; GRANT ALL ON SCHEMA {found.schema} TO app"
    )
    found.author.execute(THEIRS.replace("{s}", found.schema))
    yield found
    installed.superuser_sql(f"DROP SCHEMA {found.schema} CASCADE")


TRUSTED = [
    "SELECT id, upper(s) AS u, s || 'x' AS x, id::text AS i FROM t WHERE s LIKE 'a%' AND id IN (1, 2)",
    "SELECT s, count(*) AS n, max(amount) AS m, string_agg(s, ',') AS l, array_agg(id) AS a FROM t GROUP BY s",
    "SELECT DISTINCT date_trunc('day', at) AS d, to_char(at, 'YYYY') AS y FROM t",
    "SELECT id, now() AS n, current_date AS d, age(at) AS a FROM t",
    "SELECT id, to_jsonb(s) AS x, json_build_object('a', id) AS y, j -> 'a' AS z, row_to_json(t) AS r FROM t",
    "SELECT id, row_number() OVER (ORDER BY at RANGE BETWEEN interval '1 day' PRECEDING AND CURRENT ROW) AS n FROM t",
    "SELECT to_tsvector('english', s) AS v FROM t WHERE to_tsvector('english', s) @@ to_tsquery('english', 'a')",
    "SELECT x.a FROM t, jsonb_to_recordset(t.j) AS x(a int)",
    "SELECT g AS g FROM generate_series(1, 3) AS g",
    "SELECT m, ms, p, c, m::text AS a, to_json(m) AS b, m || 'x' AS d FROM typed",
    "SELECT ours(id) AS o, wide(id) AS w, of_any(id) AS a FROM t",
    # what others own, and cannot make anything of
    "SELECT 'a'::{s}.en AS e, id::text AS i FROM t",
    "SELECT ARRAY['a'::{s}.en] AS e, greatest('a'::{s}.en, 'b') AS g, 'a'::{s}.en = 'b' AS x",
    "SELECT '[1,2]'::{s}.plain_range AS r",
]


@pytest.mark.parametrize("query", TRUSTED)
def test_trusted_code_runs_as_the_service(two: Two, query: str) -> None:
    assert two.create(query) == "service"


UNTRUSTED = [
    ("SELECT {s}.f(id) AS x FROM t", r"function .*\.f\(integer\) belongs to"),
    ("SELECT id FROM {s}.behind", r"is not owned by app|function .*\.f\(integer\) belongs to"),
    ("SELECT {s}.total(id) AS x FROM t", r"function .*\.total\(integer\) belongs to"),
    ("SELECT id OPERATOR({s}.===) 1 AS x FROM t", r"operator .*\.=== ?\(integer,integer\) belongs to"),
    ("SELECT 'x'::{s}.checked AS d", r"function .*\.ok\(text\) belongs to"),
    ("SELECT length('x'::{s}.checked) AS d", r"function .*\.ok\(text\) belongs to"),
    ("SELECT '{x}'::{s}.checked[] AS d", r"function .*\.ok\(text\) belongs to"),
    ("SELECT x.d FROM jsonb_to_record('{}') AS x(d {s}.checked)", r"function .*\.ok\(text\) belongs to"),
    ("SELECT 'x'::{s}.clean AS d", r"domain .*\.clean belongs to .*, who may add checks"),
    ("SELECT ROW(1)::{s}.comp AS c", r"type .*\.comp belongs to .*, who may add attributes"),
    ("SELECT (NULL::{s}.comp).a AS c", r"type .*\.comp belongs to .*, who may add attributes"),
    ("SELECT '[1,2]'::{s}.bad_range AS r", r"function .*\.diff\(integer, integer\) belongs to"),
    ("SELECT 'a'::{s}.en::text AS e", r"converts values of type .*\.en"),
    ("SELECT 'a'::text::{s}.en AS e", r"converts values of type .*\.en"),
    ("SELECT ARRAY['a'::{s}.en]::text[] AS e", r"converts values of type .*\.en"),
    ("SELECT coalesce('a'::{s}.en, 'b')::text AS e", r"converts values of type .*\.en"),
    ("SELECT to_jsonb('a'::{s}.en) AS e", r"converts values of type .*\.en"),
    ("SELECT json_agg(x.e) AS e FROM (SELECT 'a'::{s}.en AS e) AS x", r"converts values of type .*\.en"),
    ("SELECT 'a'::{s}.en || 'x' AS e", r"converts values of type .*\.en"),
    ("SELECT table_to_xml('t'::regclass, true, true, '')::text AS x", r"function pg_catalog.table_to_xml"),
    ("SELECT schema_to_xml('public', true, true, '')::text AS x", r"function pg_catalog.schema_to_xml"),
    ("SELECT current_user::text AS x", "CURRENT_USER"),
    ("SELECT session_user::text AS x", "CURRENT_USER"),
    ("SELECT current_schema::text AS x", "CURRENT_USER"),
    ("SELECT current_setting('work_mem') AS x", r"function pg_catalog.current_setting\(text\)"),
    ("SELECT has_table_privilege('t', 'SELECT') AS x", r"function pg_catalog.has_table_privilege"),
    ("SELECT pg_has_role('app', 'USAGE') AS x", r"function pg_catalog.pg_has_role"),
    ("SELECT row_security_active('t') AS x", r"function pg_catalog.row_security_active"),
    ("SELECT pg_get_viewdef('pg_roles'::regclass) AS x", r"function pg_catalog.pg_get_viewdef"),
    ("SELECT last_error_message AS x FROM pgtrickle._messages", r"function pgtrickle._"),
]


@pytest.mark.parametrize(("query", "pattern"), UNTRUSTED, ids=[q for q, _ in UNTRUSTED])
def test_other_code_is_refused_by_name(two: Two, query: str, pattern: str) -> None:
    message, hint = two.refused(query)
    assert re.search(pattern, message), message
    assert f"GRANT {two.name} TO app" in hint


def test_functions_of_superusers_are_not_trusted_as_such(two: Two) -> None:
    two.db.superuser_sql("CREATE FUNCTION public.special(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'")
    message, _ = two.refused("SELECT special(id) AS x FROM t")
    assert "function public.special(integer) belongs to postgres" in message
    # what the service role itself defines runs as its author in any case
    two.db.sql("SELECT pgtrickle.create_stream_table('own', 'SELECT special(id) AS x, current_user::text AS u FROM t')")


def test_named_extensions_are_trusted_and_others_are_not(two: Two) -> None:
    two.db.superuser_sql("CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION tablefunc")
    two.db.sql("CREATE TABLE e (c citext, h hstore); GRANT SELECT ON e TO PUBLIC")
    assert two.create("SELECT c, count(*) AS n, max(h -> 'a') AS a FROM e GROUP BY c") == "service"
    two.author.execute(f"SELECT pgtrickle.drop_stream_table('{two.schema}.st')")
    message, hint = two.refused("SELECT * FROM crosstab('SELECT 1, 2, 3') AS x(a int, b int)")
    assert "function public.crosstab(text) belongs to postgres" in message
    assert "trusted_extensions" in hint
    two.db.sql("SELECT pgtrickle.set_option('trusted_extensions', 'hstore')")
    message, _ = two.refused("SELECT c FROM e")
    assert "citext" in message


def test_nobody_else_says_which_extensions_are_trusted(two: Two) -> None:
    two.db.superuser_sql("CREATE EXTENSION tablefunc")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        two.author.execute("SELECT pgtrickle.set_option('trusted_extensions', 'tablefunc')")
    two.author.execute("SET pg_trickle.trusted_extensions = 'tablefunc'")
    message, _ = two.refused("SELECT * FROM crosstab('SELECT 1, 2, 3') AS x(a int, b int)")
    assert "crosstab" in message


def test_who_owns_an_extension_cannot_add_functions_to_the_trusted_ones(two: Two) -> None:
    two.db.superuser_sql(f"GRANT CREATE ON DATABASE {two.db.name} TO {two.name}")
    two.author.execute(f"CREATE EXTENSION fuzzystrmatch SCHEMA {two.schema}")
    two.author.execute(f"ALTER EXTENSION fuzzystrmatch ADD FUNCTION {two.schema}.f(int)")
    message, _ = two.refused("SELECT {s}.f(id) AS x FROM t")
    assert f"{two.schema}.f(integer) belongs to {two.name}" in message
    message, _ = two.refused("SELECT {s}.soundex(s) AS x FROM t")
    assert "may replace it" in message
    two.db.superuser_sql(
        f"DROP EXTENSION fuzzystrmatch CASCADE; REVOKE CREATE ON DATABASE {two.db.name} FROM {two.name}"
    )


def test_who_may_create_in_a_schema_could_add_a_function_that_fits_better(two: Two) -> None:
    two.db.sql(f"GRANT CREATE ON SCHEMA public TO {two.name}")
    assert two.create("SELECT ours(id) AS x FROM t") == "service"
    two.author.execute(f"SELECT pgtrickle.drop_stream_table('{two.schema}.st')")
    for query in (
        "SELECT wide(id) AS x FROM t",
        "SELECT of_any(id) AS x FROM t",
        "SELECT 1 + wide(id + 1) AS x FROM t",
    ):
        message, _ = two.refused(query)
        assert f"is in schema public, where {two.name} may create one that fits its arguments better" in message
    assert two.create("SELECT wide(amount) AS x, ours(length(s)) AS y FROM t") == "service"


def test_with_the_authors_role_other_code_runs_as_the_author(two: Two) -> None:
    two.grant()
    assert two.create("SELECT {s}.f(id) AS x, current_user::text AS u, 'a'::{s}.en::text AS e FROM t") == "author"
    two.author.execute(f"SELECT pgtrickle.alter_stream_table('{two.schema}.st', 'SELECT id AS x FROM public.t')")
    assert two.db.sql("SELECT run_as FROM pgtrickle.pgt_stream_tables") == [("service",)]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT 'x'::{s}.checked AS d",
        "SELECT 'x'::{s}.clean AS d",
        "SELECT ROW(1)::{s}.comp AS d",
        "SELECT length(('{x}'::{s}.checked[])::text) AS d",  # read when the text is parsed
    ],
)
def test_types_whose_values_the_service_makes_are_trusted_in_any_case(two: Two, query: str) -> None:
    two.grant()
    message, hint = two.refused(query)
    assert "belongs to" in message
    assert "app stores values of this type" in hint


def test_tables_of_the_author_are_read_as_the_setting_says(two: Two) -> None:
    two.author.execute(f"CREATE TABLE {two.schema}.src (id int PRIMARY KEY)")
    message, _ = two.refused("SELECT id FROM {s}.src")
    assert "is not owned by app" in message
    two.grant()
    assert two.create("SELECT id FROM {s}.src") == "service"
    two.author.execute(f"SELECT pgtrickle.drop_stream_table('{two.schema}.st')")
    two.db.sql("SELECT pgtrickle.set_option('run_as_author', 'always')")
    assert two.create("SELECT id FROM {s}.src") == "author"


def test_code_in_an_index_of_somebody_elses_table_counts(
    two: Two, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    """PostgreSQL evaluates constants in it when it plans a statement."""
    owner = make_role(two.db)
    name = owner.info.user
    two.db.superuser_sql(f"CREATE SCHEMA o AUTHORIZATION {name}; GRANT {name} TO app")
    owner.execute("CREATE TABLE o.src (id int PRIMARY KEY)")
    owner.execute("CREATE FUNCTION o.g(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'")
    owner.execute("GRANT USAGE ON SCHEMA o TO PUBLIC; GRANT SELECT ON o.src TO PUBLIC")
    assert two.create("SELECT id FROM o.src") == "service"
    two.prepare()
    owner.execute("CREATE INDEX ON o.src ((o.g(1)))")
    with pytest.raises(PgtrickleError, match=r"an index, statistic or check of o.src calls function o.g\(integer\)"):
        two.prepare()
    two.db.superuser_sql("DROP SCHEMA o CASCADE")


@pytest.mark.parametrize(
    ("change", "pattern"),
    [
        ("ALTER FUNCTION ours(int) OWNER TO {name}", r"function public.ours\(integer\) belongs to"),
        ("ALTER DOMAIN positive ADD CHECK ({s}.ok(VALUE)) NOT VALID", r"function .*\.ok\(integer\) belongs to"),
        ("ALTER DOMAIN positive OWNER TO {name}", "domain positive|domain public.positive"),
        ("CREATE CAST (mood AS text) WITH FUNCTION {s}.evil(mood)", r"function .*\.evil\(.*mood\) belongs to"),
        (
            "CREATE CAST (mood AS json) WITH FUNCTION {s}.evil_json(mood)",
            r"function .*\.evil_json\(.*mood\) belongs to",
        ),
        ("UPDATE pgtrickle.pgt_stream_tables SET run_as = 'author'", "may not (?:SET ROLE|act as)"),
    ],
)
def test_what_changes_later_is_found_before_anything_is_evaluated(two: Two, change: str, pattern: str) -> None:
    two.author.execute(
        f"CREATE FUNCTION {two.schema}.evil(public.mood) RETURNS text LANGUAGE sql AS 'SELECT ''x'''; "
        f"CREATE FUNCTION {two.schema}.evil_json(public.mood) RETURNS json LANGUAGE sql AS 'SELECT ''1''::json'"
    )
    assert two.create("SELECT ours(id) AS o, m::text AS m, to_json(m) AS j, p FROM typed") == "service"
    two.prepare()
    two.db.superuser_sql(change.format(s=two.schema, name=two.name))
    two.db.sql("UPDATE pgtrickle.pgt_stream_tables SET plan = plan - 'code' WHERE run_as = 'author'")
    with pytest.raises(PgtrickleError, match=pattern):
        two.prepare()
    two.db.superuser_sql("ALTER DOMAIN positive OWNER TO app")


def test_new_labels_of_an_enum_and_grants_change_nothing(two: Two) -> None:
    assert two.create("SELECT m, p FROM typed") == "service"
    two.prepare()
    with connect(two.db.dsn, role="test", autocommit=True) as conn:
        (before,) = load_stream_tables(conn)
        two.db.sql("ALTER TYPE mood ADD VALUE 'none'; GRANT USAGE ON TYPE mood TO PUBLIC")
        (after,) = load_stream_tables(conn)
    assert before.code == after.code is not None
