"""validate_query: what PostgreSQL knows at once, and the whole plan as soon as the control plane has told it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgtrickle.db import connect
from pgtrickle.db.install import install
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.refresh.plan_requests import tell_plans
from tests.conftest import Database, run
from tests.postgres.test_plans import JOIN, explained, served

Role = psycopg.Connection[Any]

CYCLE = (
    "WITH RECURSIVE r (a) AS (SELECT a FROM public.t UNION SELECT t.b FROM public.t JOIN r ON r.a = t.a) "
    "CYCLE a SET is_cycle USING path SELECT a FROM r"
)

KNOWN_LATER = "PostgreSQL shows no obstacle to DIFFERENTIAL; the control plane decides when it compiles the query"


class Checks:
    """The rows that a call gave."""

    def __init__(self, session: Role, query: str) -> None:
        self.rows = run(session, "SELECT * FROM pgtrickle.validate_query(%s)", query)

    def all(self, name: str) -> list[str]:
        return [result for check, result, _ in self.rows if check == name]

    def one(self, name: str) -> tuple[str, str]:
        ((result, severity),) = [(result, severity) for check, result, severity in self.rows if check == name]
        return result, severity

    @property
    def plan(self) -> str:
        return "\n".join(self.all("plan"))

    @property
    def is_told(self) -> bool:
        return bool(self.all("planned_at"))

    @property
    def is_asked(self) -> bool:
        return not self.is_told and "the same call shortly afterwards" in self.plan

    @property
    def is_waiting(self) -> bool:
        return not self.is_told and "has not answered yet" in self.plan


def tell(database: Database) -> None:
    """The control plane's turn."""
    with connect(database.dsn, role="writer", autocommit=True) as conn:
        tell_plans(conn, database.dsn, OriginSessions())


def questions(database: Database) -> int:
    ((count,),) = database.sql("SELECT count(*) FROM pgtrickle.pgt_plans")
    return int(count)


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    return installed


@pytest.fixture
def hanging(db: Database) -> Database:
    """Its scheduler is connected, and answers when the test says so."""
    db.connect(application_name="pgtrickle/scheduler")
    return db


def test_without_a_control_plane_it_tells_what_postgresql_knows(db: Database) -> None:
    checks = Checks(db.connect(), "SELECT a, b FROM t")
    assert checks.rows[:5] == [
        ("valid", "PostgreSQL accepts the query and you may read all of it", "INFO"),
        ("refresh_mode", "not known yet", "INFO"),
        ("reason", KNOWN_LATER, "INFO"),
        ("columns", "a integer, b integer", "INFO"),
        ("source", "t", "INFO"),
    ]
    result, severity = checks.one("plan")
    assert severity == "INFO"
    assert "no scheduler is connected" in result
    assert "pgtrickle plan --query" in result
    assert len(checks.rows) == 6
    assert questions(db) == 0


@pytest.mark.parametrize("query", [JOIN, CYCLE, "SELECT a, current_date AS d FROM public.t"])
def test_repeated_call_shows_what_explain_query_tells(db: Database, query: str) -> None:
    session = db.connect()
    with served(db):
        assert Checks(session, query).is_asked
        checks = Checks(session, query)  # waits a little: what it asked is committed
        plan = explained(session, query)
    assert checks.plan == plan
    severity = "INFO" if query == JOIN else "WARNING"
    assert checks.one("refresh_mode") == ("DIFFERENTIAL" if query == JOIN else "FULL", severity)
    if query == JOIN:
        assert checks.one("reason") == ("no obstacle", "INFO")
    else:
        assert checks.one("reason") == (plan.splitlines()[1].removeprefix("Reason: "), "WARNING")
    assert Checks(db.connect(), query).plan == plan  # nobody is connected any more, and it is fresh still


def test_compiler_overrules_what_postgresql_supposed(hanging: Database) -> None:
    session = hanging.connect()
    before = Checks(session, CYCLE)
    assert before.one("refresh_mode") == ("not known yet", "INFO")
    tell(hanging)
    assert Checks(session, CYCLE).one("refresh_mode") == ("FULL", "WARNING")


def test_refusal_of_the_control_plane_is_said(hanging: Database) -> None:
    session = hanging.connect()
    assert Checks(session, JOIN).is_asked
    hanging.sql("UPDATE pgtrickle.pgt_plans SET answered_at = clock_timestamp(), error_message = 'PGT200: no'")
    checks = Checks(session, JOIN)
    assert checks.one("refresh_mode") == ("none", "WARNING")
    assert checks.one("reason") == ("PGT200: no", "WARNING")
    assert checks.one("plan") == ("none: the control plane refuses the query", "WARNING")


def seconds(check: Callable[[], bool]) -> float:
    """What a check that holds takes."""
    began = time.monotonic()
    assert check()
    return time.monotonic() - began


def test_question_is_asked_once_and_with_its_transaction(hanging: Database) -> None:
    session = hanging.connect(autocommit=False)
    quickest = min(seconds(lambda: Checks(session, JOIN).is_asked) for _ in range(3))
    assert questions(hanging) == 0
    session.rollback()
    assert questions(hanging) == 0
    assert Checks(session, JOIN).is_asked
    session.commit()
    assert questions(hanging) == 1
    # Two seconds, because nobody answers; it does not wait for a question that it has not committed.
    assert quickest < seconds(lambda: Checks(session, JOIN).is_waiting)
    session.commit()
    assert questions(hanging) == 1
    assert hanging.sql("SELECT count(*) FROM pgtrickle.pgt_events WHERE what = 'define'") == [(1,)]


def test_who_looks_at_one_snapshot_does_not_wait(hanging: Database) -> None:
    assert Checks(hanging.connect(), JOIN).is_asked
    session = hanging.connect(autocommit=False)
    run(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    quickest = min(seconds(lambda: Checks(session, JOIN).is_waiting) for _ in range(3))
    assert quickest < seconds(lambda: Checks(hanging.connect(), JOIN).is_waiting)
    tell(hanging)
    assert Checks(session, JOIN).is_waiting
    session.commit()
    assert Checks(session, JOIN).is_told
    assert questions(hanging) == 1


def test_read_only_transaction_says_what_it_is(hanging: Database) -> None:
    session = hanging.connect(autocommit=False)
    run(session, "SET TRANSACTION READ ONLY")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="this transaction is read-only") as caught:
        Checks(session, JOIN)
    assert "may write" in (caught.value.diag.message_hint or "")


def test_answer_is_shown_to_whoever_asked(hanging: Database, make_role: Callable[[Database], Role]) -> None:
    asking, other = make_role(hanging), make_role(hanging)
    query = "SELECT a FROM public.t"
    hanging.sql(f"GRANT SELECT ON t TO {asking.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        Checks(other, query)
    assert Checks(asking, query).is_asked
    tell(hanging)
    assert Checks(asking, query).is_told
    hanging.sql(f"GRANT SELECT ON t TO {other.info.user}")
    ((key,),) = hanging.sql("SELECT understood FROM pgtrickle.pgt_plans")
    ((state, plan),) = run(other, "SELECT state, plan FROM pgtrickle._find_plan(%s, 'public', %s)", query, key)
    assert (state, plan) == ("ASKED", None)
    assert not Checks(other, query).is_told
    assert Checks(hanging.connect(), query).is_asked
    for role in (asking, other):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            run(role, "SELECT * FROM pgtrickle.pgt_plans")
    hanging.sql(f"REVOKE SELECT ON t FROM {asking.info.user}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        Checks(asking, query)


def test_answer_is_for_one_search_path(hanging: Database) -> None:
    hanging.sql("CREATE SCHEMA side; CREATE TABLE side.t (a int PRIMARY KEY, b int)")
    session = hanging.connect()
    assert Checks(session, "SELECT a FROM t").is_asked
    tell(hanging)
    assert "Scan public.t" in Checks(session, "SELECT a FROM t").plan
    run(session, "SET search_path = side, public")
    assert Checks(session, "SELECT a FROM t").is_asked
    tell(hanging)
    assert "Scan side.t" in Checks(session, "SELECT a FROM t").plan


def test_answer_ends_with_what_it_was_told_of(hanging: Database) -> None:
    hanging.sql("CREATE VIEW v AS SELECT a FROM t")
    session = hanging.connect()
    assert Checks(session, "SELECT * FROM v").is_asked
    tell(hanging)
    assert Checks(session, "SELECT * FROM v").is_told
    hanging.sql("CREATE OR REPLACE VIEW v AS SELECT a, b FROM t")
    assert Checks(session, "SELECT * FROM v").is_asked


def test_old_answers_are_not_shown_and_go(hanging: Database) -> None:
    session = hanging.connect()
    assert Checks(session, JOIN).is_asked
    assert Checks(session, "SELECT b FROM public.t").is_asked
    tell(hanging)
    hanging.sql("UPDATE pgtrickle.pgt_plans SET answered_at = answered_at - interval '61 seconds'")
    assert Checks(session, JOIN).is_asked
    tell(hanging)
    assert hanging.sql("SELECT query FROM pgtrickle.pgt_plans") == [(JOIN,)]
    assert Checks(session, JOIN).is_told
    hanging.sql("UPDATE pgtrickle.pgt_plans SET asked_at = asked_at - interval '1 hour', answered_at = NULL")
    tell(hanging)
    assert questions(hanging) == 0


def test_query_over_another_database_is_validated(
    make_installed: Callable[[], Database], make_role: Callable[[Database], Role]
) -> None:
    home, other = make_installed(), make_installed()
    other.sql("CREATE TABLE public.orders (id int PRIMARY KEY, amount int)")
    query = f"SELECT amount, count(*) AS n FROM {other.name}.public.orders GROUP BY amount"
    session, role = home.connect(), make_role(home)
    assert "no scheduler" in Checks(session, query).plan
    with served(home):
        checks = Checks(session, query)
        assert checks.is_asked
        assert checks.one("valid") == ("the query reads other databases: only the control plane can tell", "INFO")
        checks = Checks(session, query)
        assert re.sub(r"\d+", "0", checks.plan) == re.sub(r"\d+", "0", explained(session, query))
        assert checks.one("valid") == ("PostgreSQL accepts the query and you may read all of it", "INFO")
        assert checks.one("refresh_mode") == ("DIFFERENTIAL", "INFO")
        assert Checks(role, query).is_asked
        checks = Checks(role, query)
    assert checks.one("valid") == ("the control plane refuses the query", "WARNING")
    assert other.name in checks.one("reason")[0]
    assert "orders" not in checks.plan
    assert home.sql("SELECT count(*) FROM pgtrickle.pgt_mirrors") == [(0,)]


def test_table_of_before_gets_what_it_lacks(db: Database) -> None:
    db.sql(
        "UPDATE pgtrickle.pgt_schema_version SET version = 1;"
        "DROP FUNCTION pgtrickle._ask_plan(text, text, text, text);"
        "DROP FUNCTION pgtrickle._find_plan(text, text, text, text);"
        "CREATE FUNCTION pgtrickle._ask_plan(text, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';"
        "ALTER TABLE pgtrickle.pgt_plans DROP understood, DROP asked_in, DROP answered_at, DROP mode, DROP reason;"
        "INSERT INTO pgtrickle.pgt_plans (query, search_path, asked_by) VALUES ('SELECT a FROM t', 'public', 'app')"
    )
    with connect(db.dsn, role="install", autocommit=True) as conn:
        install(conn)
    with served(db):
        assert Checks(db.connect(), JOIN).is_asked
        assert Checks(db.connect(), JOIN).is_told
