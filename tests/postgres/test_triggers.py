"""Triggers of users on stream tables: their functions run with a search_path of pg_catalog alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtrickle.maintain.doctor import Finding, examine
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.server_process import free_port
from pgtrickle.settings import Sources
from tests.conftest import Database
from tests.line import Line


@pytest.fixture
def line(installed: Database) -> Iterator[Line]:
    """Small deltas need no Spark."""
    line = Line(installed.dsn, SparkEngine(lambda: f"sc://127.0.0.1:{free_port()}"))
    yield line
    line.close()


def _triggers(database: Database) -> Finding:
    report = examine(Sources(), {}, database.dsn)
    (finding,) = [f for f in report.findings if f.what == "triggers"]
    return finding


def test_a_trigger_that_relies_on_a_path_fails_and_doctor_says_how_to_change_it(
    installed: Database, line: Line
) -> None:
    line.sql("CREATE SCHEMA notes; CREATE TABLE notes.seen (id int); CREATE TABLE t (id int PRIMARY KEY)")
    line.create("st", "SELECT id FROM t")
    assert _triggers(installed).ok
    function = "CREATE FUNCTION notes.{}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}\nRETURN NULL; END $$"
    for name, body in (
        ("note", "INSERT INTO seen VALUES (NEW.id);"),
        ("qualified", "INSERT INTO notes.seen VALUES (NEW.id); -- seen"),
    ):
        line.sql(function.format(name, body))
        line.sql(f"CREATE TRIGGER {name} AFTER INSERT ON st FOR EACH ROW EXECUTE FUNCTION notes.{name}()")
    line.sql("INSERT INTO t VALUES (1)")
    line.tick()
    assert line.last("st")[1] == "FAILED"
    assert 'relation "seen" does not exist' in str(line.last("st")[2])
    assert line.rows("notes.seen") == []

    found = _triggers(installed)
    assert not found.ok
    assert f"{installed.name}: notes.note(), a trigger of public.st, finds seen along a search_path" in found.detail
    assert "qualified" not in found.detail
    _, _, remedy = found.detail.partition("hint: ")
    line.sql(remedy.removesuffix(")"))
    assert _triggers(installed).ok
    line.sql("SELECT pgtrickle.refresh_stream_table('st')")
    line.tick()
    line.check("st")
    assert line.rows("notes.seen") == [(1,), (1,)]
