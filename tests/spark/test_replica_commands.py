"""`pgtrickle replica`, against a running Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtrickle.cli.app import app
from tests.conftest import Database


@pytest.fixture
def run(installed: Database, spark_url: str, tmp_path: Path) -> Any:
    def invoke(*arguments: str, code: int = 0) -> Any:
        settings = ["--set", f"spark_remote={spark_url}", "--set", f"replica_root={tmp_path}/replicas"]
        done = CliRunner().invoke(app, [*settings, "replica", *arguments, "--server", installed.dsn])
        assert done.exit_code == code, done.output
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return invoke


def test_uninstall_removes_the_files(installed: Database, run: Any, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE sale (id int PRIMARY KEY); INSERT INTO sale VALUES (1)")
    run("create", "sale")
    assert list(tmp_path.rglob("*.parquet")) != []
    done = CliRunner().invoke(app, ["--set", f"replica_root={tmp_path}/replicas", "uninstall", "--yes", installed.dsn])
    assert done.exit_code == 0, done.output
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_replica_is_created_listed_verified_and_dropped(installed: Database, run: Any, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE sale (id int PRIMARY KEY, note text, amount numeric(10, 2))")
    installed.sql("INSERT INTO sale SELECT i, 'n' || i, i FROM generate_series(1, 100) AS i")
    assert run("list", "--json") == []
    created = run("create", "sale", "--column", "amount", "--json")
    assert (created["source"], created["rows"], created["error"]) == ("public.sale", 100, None)
    installed.sql("UPDATE sale SET amount = 0 WHERE id < 10")
    (listed,) = run("list", "--json")
    assert (listed["source_table"], listed["state"], listed["row_count"]) == ("public.sale", "ready", 100)
    assert (listed["pending_rows"], listed["requested"], listed["readers"]) == (18, True, [])
    assert run("verify", "sale") == "public.sale: equal\n"
    # The rows of a file that somebody has replaced are not compared: it is damaged.
    (file,) = tmp_path.rglob("part-*.parquet")
    content = file.read_bytes()
    file.write_bytes(b"x" * len(content))
    (verified,) = run("verify", "--all", "--json", code=1)
    assert not verified["ok"]
    assert "was modified" in verified["error"]
    run("create", "sale")
    assert "100 rows" in run("list")
    assert run("verify", "--all") == "public.sale: equal\n"
    assert run("drop", "sale") == "sale: dropped\n"
    assert run("drop", "sale", "--json") == {"source": "sale", "dropped": False}
    assert run("list") == ""
    assert list(tmp_path.rglob("*.parquet")) == []


def test_names_that_do_not_exist(installed: Database, run: Any) -> None:
    installed.sql("CREATE TABLE sale (id int)")
    run("create", "nothing", code=1)
    run("create", "sale", "--column", "nothing", code=1)
    run("verify", code=2)
