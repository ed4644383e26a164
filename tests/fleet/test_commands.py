"""Commands for stream tables beside a running `pgtrickle run`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

from tests.conftest import Database
from tests.fleet.conftest import Run, wait_for


def pgtrickle(db: Database, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    return subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environ, "PGTRICKLE_SERVER": db.dsn},
    )


def test_commands_beside_a_running_control_plane(
    installed: Database, spark_url: str, make_run: Callable[..., Run]
) -> None:
    run = make_run(installed.dsn, spark_url)
    run.start()
    wait_for(lambda: installed.sql("SELECT pgtrickle._is_served()") == [(True,)])
    installed.sql(
        "CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t SELECT g, g FROM generate_series(1, 50) AS g"
    )
    created = pgtrickle(
        installed, "create", "s", "-q", "SELECT k, 100 / v AS x FROM t", "--schedule", "1h", "--wait", "--json"
    )
    assert created.returncode == 0, created.stderr
    assert json.loads(created.stdout)["is_populated"] is True
    assert installed.sql("SELECT count(*) FROM s") == [(50,)]

    installed.sql("INSERT INTO t VALUES (51, 1)")
    refreshed = pgtrickle(installed, "refresh", "s", "--json")
    assert refreshed.returncode == 0, refreshed.stderr
    (row,) = json.loads(refreshed.stdout)
    assert (row["table"], row["inserted"], row["deleted"], row["error"]) == ("public.s", 1, 0, None)
    assert installed.sql("SELECT x FROM s WHERE k = 51") == [(100,)]

    # A row makes the query fail: the error is shown while it lasts, and no longer.
    installed.sql("INSERT INTO t VALUES (52, 0)")
    failed = pgtrickle(installed, "refresh", "s")
    assert (failed.returncode, "division by zero" in failed.stdout) == (1, True)
    shown = pgtrickle(installed, "status")
    assert (shown.returncode, "division by zero" in shown.stdout) == (1, True)
    installed.sql("DELETE FROM t WHERE k = 52")
    assert pgtrickle(installed, "refresh", "s").returncode == 0
    shown = pgtrickle(installed, "status")
    assert (shown.returncode, "division" in shown.stdout) == (0, False)
    assert re.search(r" 0 s +\S", shown.stdout)  # nothing is pending: no lag
    details = json.loads(pgtrickle(installed, "show", "s", "--json").stdout)
    assert (details["last_error_message"], details["changes_pending"]) == (None, False)
    assert details["refreshes"][0]["status"] == "COMPLETED"

    assert pgtrickle(installed, "pause", "s").returncode == 0
    suspended = pgtrickle(installed, "refresh", "s")
    assert (suspended.returncode, "SUSPENDED" in suspended.stdout) == (1, True)
    assert pgtrickle(installed, "resume", "s").returncode == 0
    assert pgtrickle(installed, "refresh", "--all").returncode == 0
    assert pgtrickle(installed, "drop", "s", "--yes").returncode == 0
