"""`pgtrickle refresh`: once, without a control plane."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from tests.conftest import Database


def refresh(database: Database, spark_url: str, *arguments: str) -> tuple[int, Any, str]:
    command = [sys.executable, "-m", "pgtrickle.cli", "refresh", "--server", database.dsn, "--json"]
    done = subprocess.run(
        [*command, "--spark-remote", spark_url, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, json.loads(done.stdout or "null"), done.stderr


def test_refresh_command_does_all_that_was_asked_and_says_what(installed: Database, spark_url: str) -> None:
    installed.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    installed.sql("INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 30) AS i")
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT v, count(*) AS n FROM t GROUP BY v', '1h')")
    installed.sql("SELECT pgtrickle.create_stream_table('r', 'SELECT sum(n) AS n FROM s', '1h')")
    status, rows, _ = refresh(installed, spark_url, "--all")
    assert status == 0
    assert {row["table"]: row["action"] for row in rows} == {"public.s": "FULL", "public.r": "FULL"}
    installed.sql("INSERT INTO t VALUES (31, 1)")
    status, rows, _ = refresh(installed, spark_url, "s")
    assert (status, [(row["table"], row["action"]) for row in rows]) == (0, [("public.s", "DIFFERENTIAL")])
    assert installed.sql("SELECT n FROM s WHERE v = 1") == [(11,)]


def test_refresh_command_needs_a_name_and_waits_for_a_control_plane_that_serves_the_database(
    installed: Database, spark_url: str
) -> None:
    assert refresh(installed, spark_url)[0] == 2
    installed.sql("CREATE TABLE t (id int); SELECT pgtrickle.create_stream_table('s', 'SELECT id FROM t', '1h')")
    connection = installed.connect(application_name="pgtrickle/scheduler")  # one that does nothing
    status, _, text = refresh(installed, spark_url, "s", "--timeout", "1")
    connection.close()
    assert status == 75
    assert "no refresh of 's' within 00:00:01" in text


def test_refresh_command_says_which_table_another_one_waits_for(installed: Database, spark_url: str) -> None:
    installed.sql("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
    installed.sql("SELECT pgtrickle.create_stream_table('s', 'SELECT v, count(*) AS n FROM t GROUP BY v', '1h')")
    installed.sql("SELECT pgtrickle.create_stream_table('r', 'SELECT sum(n) AS n FROM s', '1h')")
    assert refresh(installed, spark_url, "--all")[0] == 0
    installed.sql("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED' WHERE pgt_name = 's'")
    status, rows, _ = refresh(installed, spark_url, "r")
    assert (status, [(row["table"], row["action"]) for row in rows]) == (1, [("public.r", "SKIP")])
    assert "public.s" in rows[0]["error"]
    # all of them: also those that are not refreshed are named, every time
    installed.sql("SELECT pgtrickle.create_stream_table('q', 'SELECT 1 / (v - 1) AS n FROM t', '1h')")
    for _ in range(2):
        status, rows, _ = refresh(installed, spark_url, "--all")
        assert status == 1
        found = {row["table"]: row["error"] for row in rows}
        assert "suspended" in found["public.s"]
        assert "division by zero" in found["public.q"]
