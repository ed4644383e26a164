"""Commands against a real server, as the ordinary role that owns its database."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import TransientError
from pgtrickle.maintain.report import verify_lines
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.servers.server_process import free_port
from tests.conftest import Database
from tests.line import Line


def pgtrickle(*arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    return subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environ, "COLUMNS": "200"},
    )


def test_install_twice_then_uninstall_as_an_ordinary_role(database: Database) -> None:
    for _ in range(2):
        done = pgtrickle("install", database.dsn)
        assert (done.returncode, done.stderr) == (0, "")
        assert "is installed in postgresql://app:***@" in done.stdout
    assert pgtrickle("status", "--server", database.dsn, "--json").stdout.strip() == "[]"
    assert pgtrickle("uninstall", "--yes", database.dsn).returncode == 0
    assert database.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgtrickle%%'") == [(0,)]


def test_missing_database_is_a_slip_and_a_silent_server_is_tried_again(database: Database) -> None:
    server, _, _ = database.dsn.rpartition("/")
    for dsn, code in ((f"{server}/no_such_database", 1), (f"postgresql://127.0.0.1:{free_port()}/x", 75)):
        done = pgtrickle("status", "--server", dsn)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr


def test_status_lists_stream_tables(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int)")
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t', initialize => false)")
    rows = json.loads(pgtrickle("status", "--server", installed.dsn, "--json").stdout)
    assert [row["name"] for row in rows] == ["public.s"]
    text = pgtrickle("status", "--server", installed.dsn)
    assert text.returncode == 0
    assert "public.s" in text.stdout


def test_status_breaks_no_name_and_shows_the_lag(installed: Database) -> None:
    name = "a_name_as_long_as_postgresql_permits_for_a_stream_table_" + "x" * 7
    installed.sql("CREATE TABLE t (k int); SELECT pgtrickle.create_stream_table('s', 'SELECT k FROM t')")
    installed.sql("SELECT pgtrickle.create_stream_table(%s, 'SELECT k FROM t')", name)
    installed.sql("UPDATE pgtrickle.pgt_stream_tables SET is_populated = true, data_timestamp = '2026-01-01'")
    head, first, _ = pgtrickle("status", "--server", installed.dsn).stdout.splitlines()[:3]
    assert head.split("  ")[0] == "stream table"
    assert first.startswith(f"public.{name}  ")
    # The content is old, and nothing is pending.
    assert first[head.index("lag") :].startswith("0 s")


def test_an_error_is_shown_until_it_is_resolved(installed: Database, sparkless: Line) -> None:
    installed.sql("CREATE TABLE t (k int); INSERT INTO t VALUES (0)")
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT 60 / k AS v FROM t', 'calculated', 'FULL')")
    installed.connect(application_name="pgtrickle/scheduler")
    assert [o.error is None for o in sparkless.tick()] == [False]
    failed = pgtrickle("status", "--server", installed.dsn)
    assert failed.returncode == 1
    assert any(line.startswith("public.s: ") and "division by zero" in line for line in failed.stdout.splitlines())
    assert "  error:" in pgtrickle("show", "s", "--server", installed.dsn).stdout
    installed.sql("UPDATE t SET k = 5")
    installed.sql("SELECT pgtrickle.resume_stream_table('s')")
    assert [o.error for o in sparkless.tick()] == [None]
    assert installed.sql("SELECT v FROM s") == [(12,)]
    resolved = pgtrickle("status", "--server", installed.dsn)
    assert (resolved.returncode, "division by zero" in resolved.stdout) == (0, False)
    assert "  error:" not in pgtrickle("show", "s", "--server", installed.dsn).stdout


def test_status_says_what_is_missing_in_lines_of_their_own(installed: Database) -> None:
    empty = pgtrickle("status", "--server", installed.dsn)
    assert empty.stdout.splitlines() == [
        "no stream tables (hint: SELECT pgtrickle.create_stream_table(name, query))",
        "no scheduler is connected to this database (hint: start pgtrickle run)",
    ]
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT 1 AS a')")
    installed.connect(application_name="pgtrickle/scheduler")
    lines = pgtrickle("status", "--server", installed.dsn).stdout.splitlines()
    assert lines[0].split("  ")[0] == "stream table"
    assert lines[1].split() == ["public.s", "not", "loaded", "FULL", "calculated", "-", "-"]
    assert lines[2:] == ["public.s: FULL, because the query reads no table"]


@pytest.mark.parametrize("command", [("status",), ("verify", "--all"), ("refresh", "--all"), ("plan", "x")])
def test_database_without_pgtrickle_is_told_how_to_get_it(database: Database, command: tuple[str, ...]) -> None:
    done = pgtrickle(*command, "--server", database.dsn)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert (
        f"pgtrickle is not installed in database {database.name} (hint: pgtrickle install postgresql://app:***@" in line
    )


def test_role_without_usage_is_told_what_to_ask_for(
    installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    role = make_role(installed).info.user
    installed.superuser_sql(f"REVOKE USAGE ON SCHEMA pgtrickle FROM {role}")
    done = pgtrickle("status", "--server", installed.server.dsn(installed.name, user=role, password="x"))
    assert done.returncode == 1
    assert f"(hint: GRANT USAGE ON SCHEMA pgtrickle TO {role})" in done.stderr


def test_slips_in_the_dsn_are_for_whoever_typed_it(database: Database) -> None:
    word = pgtrickle("install", "mydb")
    assert (word.returncode, len(word.stderr.splitlines())) == (1, 1)
    assert "PGT100: invalid connection string" in word.stderr
    missing = pgtrickle("install", database.server.dsn("no_such_database", user="app", password="app"))
    assert missing.returncode == 1
    assert 'database "no_such_database" does not exist' in missing.stderr


def test_verify_says_why_it_cannot_compare(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    with pytest.raises(TransientError, match=r"public\.s must be refreshed") as caught:
        verify_tables(installed.dsn, ["s"], timeout_seconds=0.2)
    assert caught.value.hint == "start pgtrickle run, or run pgtrickle refresh"
    assert list(verify_lines([])) == ["this database has no stream tables"]


def test_wrong_password_is_one_line_for_the_operator(database: Database) -> None:
    done = pgtrickle("install", database.server.dsn(database.name, user="app", password="wrong"))
    assert done.returncode == 1
    assert "PGT100" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_doctor_looks_at_the_server(installed: Database, make_database: Callable[[], Database]) -> None:
    done = pgtrickle("doctor", "--server", installed.dsn)
    assert done.returncode == 0, done.stdout
    assert "ok   postgresql: 18" in done.stdout
    missing = pgtrickle("doctor", "--server", make_database().dsn)
    assert missing.returncode == 1
    assert "BAD  pgtrickle: not installed" in missing.stdout


def test_doctor_compares_the_budget_with_the_server(make_installed: Callable[[], Database]) -> None:
    one, other = make_installed(), make_installed()
    one.sql("SELECT pgtrickle.set_option('per_database_worker_quota', '2')")
    done = pgtrickle("--set", "max_databases=1", "doctor", "--server", one.dsn, "--json")
    report = json.loads(done.stdout)
    found = {finding["what"]: finding for finding in report["findings"]}
    shares = {share["database"]: share["workers"] for share in report["budget"]["shares"]}
    assert (shares[one.name], shares[other.name]) == (3, 4)
    assert (report["room"]["max_connections"], report["room"]["reserved"]) == (200, 3)
    assert found["connections"]["ok"] is True
    assert done.returncode == 1
    assert found["databases"]["ok"] is False
    assert "raise max_databases" in found["databases"]["detail"]
    many = pgtrickle("--set", "max_databases=190", "doctor", "--server", one.dsn)
    assert "BAD  connections" in many.stdout
    assert "raise max_connections by" in many.stdout
    assert f"{one.name}: scheduler, up to 3 workers" in many.stdout


def test_doctor_names_the_database_whose_settings_are_wrong(make_installed: Callable[[], Database]) -> None:
    one, other = make_installed(), make_installed()
    one.superuser_sql(f"ALTER DATABASE {other.name} SET pg_trickle.wake_debounce_ms = 0")
    done = pgtrickle("doctor", "--server", one.dsn)
    assert done.returncode == 1
    assert f"BAD  settings: {other.name}: PGT100: wake_debounce_ms = 0" in done.stdout
    assert "it must be 1..5000" in done.stdout


def test_config_takes_the_databases_own_settings(database: Database) -> None:
    database.superuser_sql(f"ALTER DATABASE {database.name} SET pg_trickle.scheduler_interval_ms = 750")
    database.superuser_sql(f"ALTER DATABASE {database.name} SET pg_trickle.spark_conf.spark_x = 'y'")
    done = pgtrickle("config", "--server", database.dsn, "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert (rows["scheduler_interval_ms"]["value"], rows["scheduler_interval_ms"]["origin"]) == (750, "database")
    assert rows["spark_conf"]["value"] == {"spark_x": "y"}


def test_config_shows_what_is_wrong_in_a_database_beside_the_rest(database: Database) -> None:
    database.superuser_sql(
        f"ALTER DATABASE {database.name} SET pg_trickle.scheduler_intervall_ms = 750; "
        f"ALTER DATABASE {database.name} SET pg_trickle.wake_debounce_ms = 9000; "
        f"ALTER DATABASE {database.name} SET pg_trickle.max_databases = 9"
    )
    done = pgtrickle("config", "--server", database.dsn)
    assert done.returncode == 1
    assert "pg_trickle.scheduler_intervall_ms, database" in done.stderr
    assert "did you mean scheduler_interval_ms?" in done.stderr
    assert "it must be 1..5000" in done.stderr
    rows = {row["name"]: row for row in json.loads(pgtrickle("config", "--server", database.dsn, "--json").stdout)}
    assert (rows["wake_debounce_ms"]["value"], rows["wake_debounce_ms"]["origin"]) == (10, "default")
    assert "it must be 1..5000" in rows["wake_debounce_ms"]["problem"]
    assert "unknown setting" in rows["scheduler_intervall_ms"]["problem"]
    assert (rows["max_databases"]["value"], rows["max_databases"]["problem"]) == (9, None)


def test_run_goes_on_when_a_setting_of_the_database_is_wrong(installed: Database) -> None:
    installed.superuser_sql(f"ALTER DATABASE {installed.name} SET pg_trickle.wake_debounce_ms = 0")
    nowhere = f"sc://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "pgtrickle.cli", "run", "--server", installed.dsn, "--spark-remote", nowhere],
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")},
    )
    try:
        said = []
        for line in process.stderr or ():
            said.append(line)
            if "Started" in line:
                break
        assert any("it must be 1..5000" in line for line in said), said
        assert process.poll() is None
    finally:
        process.terminate()
        process.communicate(timeout=300)


def test_json_log_of_run_has_nothing_but_json(installed: Database) -> None:
    command = [sys.executable, "-m", "pgtrickle.cli", "--log-format", "json", "run"]
    process = subprocess.Popen(
        [*command, "--server", installed.dsn, "--spark-remote", f"sc://127.0.0.1:{free_port()}"],
        stderr=subprocess.PIPE,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")},
    )
    lines = []
    try:
        for line in process.stderr or ():
            lines.append(line)
            if "could not be warmed up" in line:
                break
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=300)
    events = [json.loads(line)["event"] for line in (*lines, *rest.splitlines())]
    assert {"runtime.started", "runtime.spark_cold", "runtime.stopped"} <= set(events)
    (failed,) = pgtrickle("--log-format", "json", "run", "--server", "no dsn").stderr.splitlines()
    assert (json.loads(failed)["event"], "PGT100" in json.loads(failed)["message"]) == ("cli.failed", True)


def test_plan_says_how_a_table_is_maintained_and_how_a_query_would_be(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    query = "SELECT x.a, y.b FROM t x LEFT JOIN t y ON y.a = x.b WHERE NOT EXISTS (SELECT 1 FROM t z WHERE z.b = x.a)"
    installed.sql("SELECT pgtrickle.create_stream_table('s', %s, initialize => false)", query)
    of_table = pgtrickle("plan", "s", "--server", installed.dsn)
    assert (of_table.returncode, of_table.stderr) == (0, "")
    for part in ("Mode: DIFFERENTIAL", "LEFT JOIN", "Subquery (exists)", "Scan public.t", "In Spark:", "was truncated"):
        assert part in of_table.stdout
    of_query = pgtrickle("plan", "--query", query, "--server", installed.dsn, "--json")
    assert (of_query.returncode, of_query.stderr) == (0, "")
    assert (
        json.loads(of_query.stdout)["tree"]
        == json.loads(pgtrickle("plan", "s", "--server", installed.dsn, "--json").stdout)["tree"]
    )
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(1,)]
    full = pgtrickle("plan", "--query", "SELECT a, current_date AS d FROM t", "--server", installed.dsn)
    assert "Mode: FULL" in full.stdout
    assert "CURRENT_DATE" in full.stdout


def test_plan_says_which_engine_evaluates_a_table_and_what_spark_cannot_evaluate(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int PRIMARY KEY, b int)")
    queries = {
        "sums": "SELECT b, count(*) AS n FROM t GROUP BY b",
        "ties": "SELECT DISTINCT ON (b) b, a % 2 AS first FROM t ORDER BY b",
        "documents": "SELECT to_jsonb(t) AS document FROM t",
    }
    for name, query in queries.items():
        installed.sql("SELECT pgtrickle.create_stream_table(%s, %s, initialize => false)", name, query)
    installed.sql("SELECT pgtrickle.alter_stream_table('sums', engine => 'auto')")

    def engine_lines(*arguments: str) -> list[str]:
        shown = pgtrickle("plan", *arguments, "--server", installed.dsn)
        assert (shown.returncode, shown.stderr) == (0, "")
        return [line for line in shown.stdout.splitlines() if line.startswith("Engine: ") or " on Spark: " in line]

    possible = ["FULL on Spark: possible", "DIFFERENTIAL on Spark: possible"]
    assert engine_lines("sums") == ["Engine: auto", *possible]
    assert engine_lines("--query", queries["sums"]) == ["Engine: as the setting pg_trickle.engine says", *possible]
    assert engine_lines("ties")[1:] == [
        "FULL on Spark: possible",
        "DIFFERENTIAL on Spark: not possible, because Spark cannot evaluate the query: the delta of rows that the "
        "query does not determine (ties in an order) is not evaluated on Spark",
    ]
    (refused,) = engine_lines("documents")[1:]  # its mode is FULL
    assert refused.startswith("FULL on Spark: not possible, because Spark cannot evaluate the query: ")
    document = json.loads(pgtrickle("plan", "sums", "--server", installed.dsn, "--json").stdout)
    assert document["spark_obstacles"] == {"FULL": None, "DIFFERENTIAL": None}
    assert (document["engine"], document["last_engine"], document["engine_reason"]) == ("auto", None, None)


def test_plan_of_what_is_not_there_is_one_line(installed: Database) -> None:
    done = pgtrickle("plan", "nothing", "--server", installed.dsn)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1


def test_apply_plans_then_applies_and_exports(installed: Database, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE t (a int)")
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "s.sql").write_text("-- schedule: 1m\nSELECT a FROM t")
    apply = ("apply", "-f", str(folder), "--server", installed.dsn)
    planned = pgtrickle(*apply, "--plan")
    assert (planned.returncode, planned.stderr) == (2, "")
    assert f"Set shop: 1 definition\n{installed.name}\n  + public.s  create" in planned.stdout
    assert planned.stdout.endswith("Plan: 1 to create, in 1 database\n")
    unasked = pgtrickle(*apply)
    assert unasked.returncode == 1
    assert "--yes" in unasked.stderr
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]
    done = pgtrickle(*apply, "--yes", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert (report["set"], report["databases"][0]["status"]) == ("shop", "applied")
    assert pgtrickle(*apply, "--plan").returncode == 0
    exported = pgtrickle("export", "-f", str(tmp_path / "out"), "--server", installed.dsn)
    assert (exported.returncode, exported.stderr) == (0, "")
    again = pgtrickle("apply", "-f", str(tmp_path / "out"), "--server", installed.dsn, "--plan", "--prune")
    assert again.returncode == 0, again.stdout + again.stderr
    taken = pgtrickle("export", "-f", str(tmp_path / "out"), "--server", installed.dsn)
    assert taken.returncode == 1
    assert "--overwrite" in taken.stderr


def test_apply_tells_problems_of_files_and_databases_in_one_line_each(installed: Database, tmp_path: Path) -> None:
    (tmp_path / "s.sql").write_text("-- shedule: 1m\nSELECT a FROM t")
    apply = ("apply", "-f", str(tmp_path), "--server", installed.dsn, "--yes")
    wrong = pgtrickle(*apply)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    assert wrong.stderr.startswith(f"pgtrickle: {tmp_path}/s.sql:1: unknown key shedule (hint: did you mean schedule?")
    (tmp_path / "s.sql").write_text("-- name: s\n\nSELECT a\nFROM t")
    missing = pgtrickle(*apply)
    assert missing.returncode == 1
    (line,) = missing.stderr.splitlines()
    assert line.startswith(
        f'pgtrickle: {installed.name}: PGT202: {tmp_path}/s.sql:4: the query is not valid: relation "t"'
    )
    assert pgtrickle(*apply, "--plan").returncode == 2  # usage: --plan and --yes
    assert pgtrickle(*apply, "--database", "no_such_*").returncode == 1
