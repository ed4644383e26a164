"""What the author of a query can do about a reason for FULL is shown wherever the reason is."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle.db import catalog, connect
from pgtrickle.define.prepare import prepare
from pgtrickle.model.reasons import ReasonCode
from tests.conftest import Database
from tests.postgres.test_cli_commands import pgtrickle
from tests.postgres.test_validate import Checks, tell

TIES = "SELECT x.a, y.a AS other FROM t x JOIN (SELECT a FROM t ORDER BY b LIMIT 3) y ON y.a = x.b"
DECIDE = str(ReasonCode.LIMIT_TIES.hint)
ROW = "SELECT to_jsonb(t) AS j FROM t"
COLUMNS = "list the columns of public.t, for example with jsonb_build_object()"


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    return installed


@pytest.mark.parametrize(("query", "hint"), [(ROW, COLUMNS), (TIES, DECIDE)])
def test_stream_table_in_full_has_the_hint(db: Database, query: str, hint: str) -> None:
    db.sql("SELECT pgtrickle.create_stream_table('s', %s)", query)
    with connect(db.dsn, role="writer", autocommit=True) as conn:  # only the compiler sees ties
        (table,) = catalog.load_stream_tables(conn)
        prepare(conn, table)
    assert db.sql("SELECT effective_refresh_mode, mode_hint FROM pgtrickle.pgt_status()") == [("FULL", hint)]
    assert db.sql("SELECT value FROM pgtrickle.explain_st('s') WHERE property = 'mode_hint'") == [(hint,)]
    for command in (["status"], ["show", "s"]):
        assert f"(hint: {hint})" in pgtrickle(*command, "--server", db.dsn).stdout
    for what in (["s"], ["--query", query]):
        assert f"Hint: {hint}" in pgtrickle("plan", *what, "--server", db.dsn).stdout.splitlines()


def test_validate_query_has_the_hint(db: Database) -> None:
    assert Checks(db.connect(), ROW).one("hint") == (COLUMNS, "INFO")
    db.connect(application_name="pgtrickle/scheduler")
    before = Checks(db.connect(), TIES)
    assert before.all("hint") == []
    tell(db)
    checks = Checks(db.connect(), TIES)
    assert checks.one("hint") == (DECIDE, "INFO")
    assert f"Hint: {DECIDE}" in checks.plan.splitlines()


def test_refused_mode_has_the_hint(db: Database) -> None:
    with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
        db.sql("SELECT pgtrickle.create_stream_table('s', %s, refresh_mode => 'DIFFERENTIAL')", ROW)
    assert str(caught.value.diag.message_hint).endswith(COLUMNS)
