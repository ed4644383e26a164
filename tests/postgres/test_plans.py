"""CALL explain_query: how a query would be maintained, told by the control plane to whoever may read what it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgtrickle.db import connect
from pgtrickle.errors import ConfigError
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.refresh.plan_requests import plan_of_query, tell_plans
from tests.conftest import Database, run

JOIN = "SELECT x.a, count(*) AS n FROM public.t AS x LEFT JOIN public.t AS y ON y.a = x.b GROUP BY x.a"


@contextmanager
def served(database: Database) -> Iterator[None]:
    """A control plane that does nothing but answer."""
    stop = threading.Event()
    origins = OriginSessions()

    def answer() -> None:
        with connect(database.dsn, role="control", autocommit=True) as conn:
            ready.set()
            while not stop.wait(0.02):
                tell_plans(conn, database.dsn, origins)

    ready = threading.Event()
    thread = threading.Thread(target=answer)
    thread.start()
    try:
        assert ready.wait(120)
        yield
    finally:
        stop.set()
        thread.join()


def explained(role: psycopg.Connection[Any], query: str, seconds: float = 120) -> str:
    ((plan,),) = run(role, "CALL pgtrickle.explain_query(%s, timeout => make_interval(secs => %s))", query, seconds)
    return str(plan)


def test_query_is_explained_as_its_table_would_be_and_nothing_is_left(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    count = "SELECT count(*) FROM pg_class UNION ALL SELECT count(*) FROM pg_namespace WHERE nspname !~ '^pg_'"
    before = installed.sql(count)
    with served(installed):
        plan = explained(installed.connect(), JOIN)
        full = explained(installed.connect(), "SELECT a, current_date AS d FROM public.t")
        bare = explained(installed.connect(), "SELECT a FROM t")  # along the search_path of whoever asks
    for line in plan_of_query(installed.dsn, JOIN)["tree"]:
        assert line in plan
    for part in ("Mode: DIFFERENTIAL", "In Spark:", "was truncated", "Statements:"):
        assert part in plan
    assert "Mode: DIFFERENTIAL" in bare
    assert full.startswith("Mode: FULL\nReason: ")
    assert "CURRENT_DATE" in full
    assert installed.sql(count) == before
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_plans") == [(0,)]
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_obstacle_that_only_the_compiler_sees_is_told_beforehand(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    query = (
        "WITH RECURSIVE r (a) AS (SELECT a FROM t UNION SELECT t.b FROM t JOIN r ON r.a = t.a) "
        "CYCLE a SET is_cycle USING path SELECT a FROM r"
    )
    with served(installed):
        assert "Mode: FULL\nReason: " in explained(installed.connect(), query)


def test_who_may_not_read_is_told_no_plan(installed: Database, make_role: Callable[[Database], Any]) -> None:
    installed.sql("CREATE TABLE hidden (a int PRIMARY KEY, b int)")
    role = make_role(installed)
    with served(installed):
        for query in ("SELECT a FROM public.hidden", "SELECT count(*) AS n FROM public.hidden"):
            with pytest.raises(psycopg.Error, match="hidden"):
                explained(role, query)
        installed.sql(f"GRANT SELECT ON hidden TO {role.info.user}")
        assert "Scan public.hidden" in explained(role, "SELECT a FROM public.hidden")  # may not create anywhere, either
        theirs = installed.server.dsn(installed.name, user=role.info.user, password="x")
        with pytest.raises(ConfigError, match="installed pgtrickle") as caught:
            plan_of_query(theirs, "SELECT a FROM public.hidden")
        assert "explain_query" in (caught.value.hint or "")
        for query in ("SELECT nothing FROM public.hidden", "SELEC", "SELECT 1 AS a; CREATE TABLE broken_in ()"):
            with pytest.raises(psycopg.Error, match=r"not valid|more than one statement"):
                explained(role, query)
    assert installed.sql("SELECT to_regclass('broken_in')") == [(None,)]


def test_answer_is_for_whoever_asked(installed: Database, make_role: Callable[[Database], Any]) -> None:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    asking, other = make_role(installed), make_role(installed)
    installed.sql(f"GRANT SELECT ON t TO {asking.info.user}")
    with connect(installed.dsn, role="control", autocommit=True) as conn:
        ((number,),) = run(asking, "SELECT pgtrickle._ask_plan('SELECT a FROM public.t', 'public')")
        tell_plans(conn, installed.dsn, OriginSessions())
    assert run(other, "SELECT * FROM pgtrickle._take_plan(%s, true)", number) == []
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        run(other, "SELECT * FROM pgtrickle.pgt_plans")
    ((plan, error),) = run(asking, "SELECT * FROM pgtrickle._take_plan(%s, false)", number)
    assert plan.startswith("Mode: DIFFERENTIAL")
    assert error is None


def test_without_a_control_plane_it_says_so(installed: Database) -> None:
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="no scheduler") as caught:
        explained(installed.connect(), "SELECT 1 AS a")
    assert "pgtrickle plan --query" in (caught.value.diag.message_hint or "")
    with (
        connect(installed.dsn, role="control", autocommit=True),  # one that hangs
        pytest.raises(psycopg.errors.QueryCanceled, match="no answer within"),
    ):
        explained(installed.connect(), "SELECT 1 AS a", 0.2)
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_plans") == [(0,)]


def test_query_over_another_database_is_explained(
    make_installed: Callable[[], Database], make_role: Callable[[Database], Any]
) -> None:
    home, other = make_installed(), make_installed()
    other.sql("CREATE TABLE public.orders (id int PRIMARY KEY, amount int)")
    query = f"SELECT amount, count(*) AS n FROM {other.name}.public.orders GROUP BY amount"
    role = make_role(home)
    with served(home):
        plan = explained(home.connect(), query)
        with pytest.raises(psycopg.Error, match=r"permission denied|no USAGE|may not"):
            explained(role, query)
    assert "Mode: DIFFERENTIAL" in plan
    assert f"Scan {other.name}.public.orders (mirrored here as " in plan
    assert plan_of_query(home.dsn, query)["mode"] == "DIFFERENTIAL"
    assert home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(0,)]
    assert home.sql("SELECT count(*) FROM pgtrickle.pgt_definitions") == [(0,)]


def test_names_are_looked_up_as_whoever_asks_would(installed: Database, make_role: Callable[[Database], Any]) -> None:
    """In the session that answers, "$user" is another schema."""
    role = make_role(installed)
    name = role.info.user
    for schema in (name, "public"):
        installed.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}; CREATE TABLE {schema}.t (a int PRIMARY KEY)")
        installed.sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}; GRANT SELECT ON {schema}.t TO {name}")
    with served(installed):
        assert f"Scan {name}.t" in explained(role, "SELECT a FROM t")
        assert "Scan public.t" in explained(installed.connect(), "SELECT a FROM t")
        run(role, "SET search_path = public")
        assert "Scan public.t" in explained(role, "SELECT a FROM t")
