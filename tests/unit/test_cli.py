"""The command line as a user meets it: in a process of its own."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from typer.main import get_group

from pgtrickle.cli.app import app
from pgtrickle.cli.keyboard import parse
from pgtrickle.cli.render import age_text, duration_text
from pgtrickle.cli.top_view import COLUMNS, TopView, columns_that_fit, render_list


def pgtrickle(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_") and k != "JAVA_HOME"}
    return subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**kept, "COLUMNS": "120", **environ},
    )


@pytest.mark.slow
def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['pgtrickle', '--help']\n"
        "from pgtrickle.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'pyarrow', 'pandas', 'numpy', 'psycopg', 'sqlglot', 'grpc'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    best = {"help": 1e9, "typer": 1e9}
    for _ in range(5):
        for name, text in (("help", code), ("typer", "import rich.console, typer.main")):
            began = time.monotonic()
            done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
            best[name] = min(best[name], time.monotonic() - began)
            assert done.returncode == 0, done.stderr
            assert ("verify" in done.stdout) == (name == "help")
    assert best["help"] < 3 * best["typer"]


def test_usage_errors_exit_with_2() -> None:
    assert pgtrickle("no-such-command").returncode == 2
    assert pgtrickle("run").returncode == 2
    assert pgtrickle("verify", "--server", "postgresql://x").returncode == 2
    assert pgtrickle("verify", "a", "--all", "--server", "postgresql://x").returncode == 2


def test_config_shows_value_and_origin() -> None:
    done = pgtrickle("--set", "wake_debounce_ms=7", "config", "--json", PGTRICKLE_ENABLED="off")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert (rows["wake_debounce_ms"]["value"], rows["wake_debounce_ms"]["origin"]) == (7, "flag")
    assert (rows["enabled"]["value"], rows["enabled"]["origin"]) == (False, "env")
    assert rows["max_buffer_rows"]["origin"] == "default"


def test_config_reads_a_file(tmp_path: Path) -> None:
    file = tmp_path / "pgtrickle.toml"
    file.write_text("scheduler_interval_ms = 250\n[spark_conf]\n'spark.x' = 1\n")
    done = pgtrickle("--config", str(file), "config", "--json")
    rows = {row["name"]: row for row in json.loads(done.stdout)}
    assert (rows["scheduler_interval_ms"]["value"], rows["scheduler_interval_ms"]["origin"]) == (250, "file")
    assert rows["spark_conf"]["value"] == {"spark.x": "1"}


@pytest.mark.parametrize(
    ("content", "says"), [("scheduler_interval_ms = 1", "100..600000"), ("= broken", "not valid TOML")]
)
def test_a_bad_file_is_one_line_without_a_traceback(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "pgtrickle.toml"
    file.write_text(content)
    done = pgtrickle("--config", str(file), "config")
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_file_is_one_line() -> None:
    done = pgtrickle("--config", "/no/such/file.toml", "config")
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_an_unreachable_server_exits_with_75_and_hides_the_password() -> None:
    done = pgtrickle("install", "postgresql://me:secret@127.0.0.1:1/db?connect_timeout=2")
    assert done.returncode == 75
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr


def test_debug_shows_the_traceback() -> None:
    done = pgtrickle("--debug", "--config", "/no/such/file.toml", "config")
    assert "Traceback" in done.stderr


def test_doctor_passes_over_an_unsuitable_java_home() -> None:
    done = pgtrickle("doctor", JAVA_HOME="/no/java/here")
    assert done.returncode == 0
    assert "JAVA_HOME = /no/java/here: there is no bin/java in it; using Java" in done.stdout


def test_doctor_refuses_an_unsuitable_configured_java() -> None:
    done = pgtrickle("doctor", PGTRICKLE_JAVA_HOME="/no/java/here")
    assert done.returncode == 1
    assert "BAD  java" in done.stdout


def test_every_command_that_reports_facts_has_json() -> None:
    without = {"run", "demo", "top", "completion"}  # a service, a show, a screen, a script
    commands = dict(get_group(app).commands)
    for group in ("replica", "server"):
        commands.update(getattr(commands.pop(group), "commands", {}))
    found = {name for name, command in commands.items() if any("--json" in p.opts for p in command.params)}
    assert set(commands) - found == without


def test_keys_of_terminals_have_names() -> None:
    assert list(parse("s\x1b[A\x1bOB\x1b[5~\r\x7f\x1b")) == [
        "s",
        "up",
        "down",
        "page up",
        "enter",
        "backspace",
        "escape",
    ]
    assert list(parse("\x1b[200~x")) == ["x"]  # what has no meaning here is no text either


def rows() -> list[dict[str, object]]:
    blank = dict.fromkeys(
        ("mode", "engine", "lag", "ms", "refreshes", "written", "error", "rows_done", "rows_estimated")
    )
    return [
        {**blank, "name": "a", "status": "ACTIVE", "lag": 1.0},
        {**blank, "name": "b", "status": "ERROR", "lag": 9.0},
        {**blank, "name": "c", "status": "ACTIVE"},
    ]


def test_a_narrow_top_shows_fewer_columns_and_whole_names() -> None:
    long = [{**row, "name": "public." + str(row["name"]) * 30, "mode": "DIFFERENTIAL"} for row in rows()]
    view = TopView()
    keys = [[column.key for column in columns_that_fit(view, long, width)] for width in (200, 80, 50, 20)]
    assert keys[0] == [column.key for column in COLUMNS]
    assert keys[1:] == [
        ["name", "status", "lag", "ms", "written"],
        ["name", "status", "lag"],
        ["name", "status", "lag"],
    ]
    view.press("s", long, 10)  # by `ms`, which stays then
    assert [column.key for column in columns_that_fit(view, long, 20)] == ["name", "status", "lag", "ms"]
    console = Console(width=80, file=io.StringIO())
    console.print(render_list(view, long, "db", 20, 80))
    assert "public." + "a" * 30 in console.file.getvalue()  # type: ignore[attr-defined]


def test_ages_and_durations_are_short() -> None:
    texts = [duration_text(s) for s in (0, 0.004, 0.34, 9.96, 45.2, 61, 7200, 200_000)]
    assert texts == ["0 s", "0.1 s", "0.3 s", "10.0 s", "45 s", "1 min", "2 h", "2 d"]
    now = datetime.now(UTC)
    ages = [age_text(now - timedelta(seconds=s)) for s in (-5, 0.2, 3.2, 45, 130)]
    assert ages == ["now", "now", "3 s ago", "45 s ago", "2 min ago"]


def test_top_sorts_filters_and_drills_down() -> None:
    view = TopView()
    assert [row["name"] for row in view.rows(rows())] == ["b", "a", "c"]  # by lag; what is unknown last
    view.press("r", rows(), 10)
    assert [row["name"] for row in view.rows(rows())] == ["a", "b", "c"]
    for key in "/eRr":
        view.press(key, rows(), 10)
    assert [row["name"] for row in view.rows(rows())] == ["b"]
    for key in ("enter", "down", "enter"):
        view.press(key, rows(), 10)
    assert view.detail == "b"
    for key in ("escape", "escape", "end", "enter"):
        view.press(key, rows(), 10)
    assert (view.detail, view.pattern) == ("c", "")
    view.press("q", rows(), 10)
    assert view.is_done
