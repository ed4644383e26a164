"""`pgtrickle init` on a real server: in a dialogue, without one, and where it cannot work."""

from __future__ import annotations

import json
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.conftest import Database
from tests.postgres.test_cli_tables import on_terminal, pgtrickle


def test_init_asks_checks_writes_and_installs(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    status, said = on_terminal(
        database,
        ["init"],
        [("Configuration file", f"{file}\n"), ("or none", "\n"), ("Install pgtrickle", "\n")],
    )
    assert status == 0, said
    assert "ok   privileges: app may create schemas" in said
    assert "postgresql://app:***@" in said  # no password on the screen
    assert tomllib.loads(file.read_text()) == {"http": "127.0.0.1:8321", "log_format": "text"}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    configured = pgtrickle(database, "--config", str(file), "config", "--json")
    values = {row["name"]: (row["value"], row["origin"]) for row in json.loads(configured.stdout)}
    assert values["http"] == ("127.0.0.1:8321", "file")
    assert json.loads(pgtrickle(database, "list", "--json").stdout) == []


def test_init_without_a_dialogue(
    database: Database, tmp_path: Path, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    file = tmp_path / "pgtrickle.toml"
    done = pgtrickle(database, "init", "--file", str(file), "--http", "0.0.0.0:9000", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["file"], report["installation"]["role"]) == (str(file), "app")
    assert all(check["ok"] for check in report["checks"])
    written = tomllib.loads(file.read_text())
    assert (written["http"], len(written["http_token"])) == ("0.0.0.0:9000", 32)
    again = pgtrickle(database, "init", "--file", str(file), "--yes")
    assert (again.returncode, "--overwrite" in again.stderr) == (1, True)
    assert pgtrickle(database, "init", "--file", str(file), "--yes", "--overwrite", "--http", "none").returncode == 0
    assert "http" not in tomllib.loads(file.read_text())


def test_init_says_which_privilege_is_missing(database: Database, tmp_path: Path) -> None:
    database.superuser_sql("DROP ROLE IF EXISTS weak; CREATE ROLE weak LOGIN PASSWORD 'x'")
    dsn = database.server.dsn(database.name, user="weak", password="x")
    done = pgtrickle(database, "init", "--server", dsn, "--file", str(tmp_path / "x.toml"), "--yes")
    assert done.returncode == 1
    assert f"(hint: GRANT CREATE ON DATABASE {database.name} TO weak)" in done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was written
    assert database.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgtrickle%%'") == [(0,)]
    database.superuser_sql("DROP ROLE weak")
