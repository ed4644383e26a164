"""Commands for single stream tables, the shell's completion, colours and exit statuses, on a real server."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from pgtrickle.cli.app import COMMANDS
from pgtrickle.cli.exit_status import MEANINGS
from tests.conftest import Database
from tests.packages import require_program

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "command-line.md"


def pgtrickle(db: Database, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    return subprocess.run(
        [sys.executable, "-m", "pgtrickle.cli", *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environ, "PGTRICKLE_SERVER": db.dsn},
    )


def on_terminal(
    db: Database, arguments: Sequence[str], answers: Sequence[tuple[str, str]] = (), **environ: str
) -> tuple[int, str]:
    """Exit status and output of a command whose standard streams are a pseudo-terminal of 80 columns. `answers`: the
    questions that are waited for one after the other, and what is typed then."""
    answers = list(answers)
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a background job of a shell ignores it
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_") and k != "NO_COLOR"}
        kept |= {"PGTRICKLE_SERVER": db.dsn, "TERM": "xterm-256color", "COLUMNS": "80", **environ}
        os.execve(sys.executable, [sys.executable, "-m", "pgtrickle.cli", *arguments], kept)
    said = b""
    while select.select([terminal], [], [], 180)[0]:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not read:
            break
        said += read
        if answers and answers[0][0].encode() in said:
            os.write(terminal, answers.pop(0)[1].encode())
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), said.decode()


def test_a_stream_table_from_creation_to_drop(installed: Database, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE t (a int, b text)")
    file = tmp_path / "s.sql"
    file.write_text("SELECT a, count(*) AS n\nFROM t GROUP BY a")
    created = pgtrickle(installed, "create", "s", "-f", str(file), "--schedule", "1m", "--option", "cdc_mode=trigger")
    assert (created.returncode, created.stdout) == (
        0,
        "public.s: not loaded yet, DIFFERENTIAL, schedule 1m\n",
    ), created.stderr
    assert "is empty until a scheduler serves this database (hint: Start pgtrickle run.)" in created.stderr
    assert installed.sql("SELECT original_query, cdc_mode FROM pgtrickle.pgt_stream_tables") == [
        (file.read_text(), "trigger")
    ]
    again = pgtrickle(installed, "create", "s", "--query", "SELECT a FROM t")
    assert again.returncode == 1
    assert "already exists" in again.stderr
    kept = pgtrickle(installed, "create", "s", "--query", "SELECT a FROM t", "--if-not-exists", "--json")
    assert (kept.returncode, json.loads(kept.stdout)["schedule"]) == (0, "1m")
    piped = pgtrickle(installed, "create", "r", "-f", "-", "--mode", "FULL", text="SELECT sum(n) AS n FROM s")
    assert piped.returncode == 0, piped.stderr
    replaced = pgtrickle(installed, "create", "r", "-q", "SELECT sum(n) AS n FROM s", "--or-replace", "--json")
    assert json.loads(replaced.stdout)["refresh_mode"] == "AUTO"

    listed = pgtrickle(installed, "list")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:]] == ["public.r", "public.s"]
    assert [row["name"] for row in json.loads(pgtrickle(installed, "list", "s*", "--json").stdout)] == ["public.s"]
    shown = pgtrickle(installed, "show", "s")
    assert "    SELECT a, count(*) AS n\n    FROM t GROUP BY a\n  sources:\n    public.t (TABLE" in shown.stdout
    assert "  read by:      public.r\n" in shown.stdout
    facts = json.loads(pgtrickle(installed, "show", "public.s", "--json").stdout)
    assert (facts["name"], facts["read_by"], facts["sources"][0]["source_table"]) == (
        "public.s",
        ["public.r"],
        "public.t",
    )

    paused = pgtrickle(installed, "pause", "s", "r", "--json")
    assert json.loads(paused.stdout) == [
        {"name": "public.r", "status": "SUSPENDED"},
        {"name": "public.s", "status": "SUSPENDED"},
    ]
    assert pgtrickle(installed, "status").returncode == 1
    resumed = pgtrickle(installed, "resume", "--all")
    assert resumed.returncode == 0
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE status = 'SUSPENDED'") == [(0,)]

    unasked = pgtrickle(installed, "drop", "s")
    assert (unasked.returncode, "--yes" in unasked.stderr) == (1, True)
    read = pgtrickle(installed, "drop", "s", "--yes")
    assert (read.returncode, "public.r reads public.s" in read.stderr) == (1, True)
    dropped = pgtrickle(installed, "drop", "s", "nothing", "--yes", "--cascade", "--if-exists", "--json")
    assert json.loads(dropped.stdout) == [{"name": "s", "dropped": True}, {"name": "nothing", "dropped": False}]
    assert json.loads(pgtrickle(installed, "list", "--json").stdout) == []


def test_the_query_means_what_it_means_to_its_author(installed: Database) -> None:
    """The command's session has the settings of the role, as psql's would."""
    installed.sql("CREATE SCHEMA mine; CREATE TABLE mine.t (d date)")
    installed.superuser_sql(
        f"ALTER ROLE app IN DATABASE {installed.name} SET search_path = mine; "
        f"ALTER ROLE app IN DATABASE {installed.name} SET datestyle = 'German'"
    )
    created = pgtrickle(installed, "create", "s", "--query", "SELECT d::text AS d FROM t")
    assert created.returncode == 0, created.stderr
    assert installed.sql(
        "SELECT pgt_schema::text, session_settings ->> 'DateStyle' FROM pgtrickle.pgt_stream_tables"
    ) == [("mine", "German, DMY")]


def test_drop_asks_on_a_terminal(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    status, said = on_terminal(installed, ["drop", "s"], [("[y/N]", "n\n")])
    assert (status, "Drop s with their content? [y/N]" in said) == (1, True)
    assert on_terminal(installed, ["drop", "s"], [("[y/N]", "y\n")])[0] == 0
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_stream_tables") == [(0,)]


def test_wait_says_that_nobody_loads(installed: Database) -> None:
    installed.sql("CREATE TABLE t (a int)")
    waited = pgtrickle(installed, "create", "s", "--query", "SELECT a FROM t", "--wait")
    assert waited.returncode == 1
    assert "public.s is not loaded: no control plane serves this database" in waited.stderr
    installed.connect(application_name="pgtrickle/scheduler")  # one that does nothing
    waited = pgtrickle(installed, "create", "s", "-q", "SELECT a FROM t", "--or-replace", "--wait", "--timeout", "1")
    assert waited.returncode == 75
    assert "public.s is not loaded after 1 s" in waited.stderr


def test_no_color(installed: Database, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE t (a int)")
    (tmp_path / "s.sql").write_text("SELECT a FROM t")
    command = ["apply", "-f", str(tmp_path), "--plan"]
    colours = re.compile(r"\x1b\[[0-9;]*(?:3[0-7]|38;5;\d+)m")
    status, coloured = on_terminal(installed, command)
    assert (status, bool(colours.search(coloured))) == (2, True)
    assert "public.s" in (plain := on_terminal(installed, command, NO_COLOR="1")[1])
    assert not colours.search(plain)


def test_status_breaks_no_line_at_80_columns(installed: Database) -> None:
    names = [f"a_stream_table_with_quite_a_long_name_for_its_users_{i:08d}" for i in range(2)]
    installed.sql("CREATE TABLE t (a int)")
    for name in names:
        installed.sql("SELECT pgtrickle.create_stream_table(%s, 'SELECT a FROM t')", name)
    for command in ("status", "list"):
        _, said = on_terminal(installed, [command])
        assert [line.split()[0] for line in said.splitlines()[1:3]] == [f"public.{name}" for name in names]


def test_tables_of_the_demo_fit_80_columns(installed: Database) -> None:
    """Every line of status, list and show, with names as long as there and refreshes."""
    installed.sql("CREATE TABLE t (a int)")
    installed.sql("SELECT pgtrickle.create_stream_table('sales_by_country', 'SELECT a FROM t', '1s')")
    installed.sql(
        "UPDATE pgtrickle.pgt_stream_tables SET is_populated = true, last_refresh_at = now(), status = 'ACTIVE'"
    )
    installed.sql(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, engine, "
        "rows_inserted, rows_deleted) SELECT pgt_id, now(), now(), 'DIFFERENTIAL', 'COMPLETED', 'postgres', 1234, 1234 "
        "FROM pgtrickle.pgt_stream_tables"
    )
    for command in (["status"], ["list"], ["show", "sales_by_country"]):
        _, said = on_terminal(installed, command)
        assert "DIFFERENTIAL" in said
        assert [line for line in said.splitlines() if len(line) > 80] == []


ALL_COMMANDS = {*COMMANDS, "replica", "server"}
# What each shell offers for the last word, by the script that the command prints. In zsh, without its line editor,
# `_arguments` evaluates the list of candidates as the original does.
SHELLS = {
    "bash": (
        'eval "$(pgtrickle completion bash)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
        "_pgtrickle_completion pgtrickle; printf '%s\\n' \"${COMPREPLY[@]}\""
    ),
    "zsh": (
        "compdef() {}; _files() {}; "
        '_arguments() { local list=${1#*: :}; eval "found=( ${list[3,-3]} )"; print -rl -- ${found%%:*} }; '
        'eval "$(pgtrickle completion zsh)"; words=("$@"); CURRENT=$#; _pgtrickle_completion'
    ),
    "fish": "pgtrickle completion fish | source; complete --do-complete (string join ' ' -- $argv)",
}


def complete(db: Database, directory: Path, shell: str, *words: str) -> list[str]:
    """The candidates, without their descriptions. The shell runs in an empty directory."""
    quiet = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    arguments = list(words) if shell == "fish" else [shell, *words]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    done = subprocess.run(
        [require_program(shell, shell), *quiet, "-c", SHELLS[shell], *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=directory,
        env={**environ, "PGTRICKLE_SERVER": db.dsn, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_commands_options_and_names(installed: Database, shell: str, tmp_path: Path) -> None:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('sales', 'SELECT a FROM t')")
    # A name is data: nothing in it is executed where somebody presses the key.
    for number, hostile in enumerate(("$({})", "\\$({})", "`{}`", "\\\\`{}`", "';{};'", '"$({})')):
        name = f"sa{hostile.format(f'touch {number}')}"
        quoted = name.replace('"', '""')
        installed.sql("SELECT pgtrickle.create_stream_table(%s, 'SELECT a FROM t')", f'"{quoted}"')
    assert set(complete(installed, tmp_path, shell, "pgtrickle", "")) == ALL_COMMANDS
    assert {"pause", "plan"} <= set(complete(installed, tmp_path, shell, "pgtrickle", "p"))
    assert "--cascade" in complete(installed, tmp_path, shell, "pgtrickle", "drop", "--c")
    assert complete(installed, tmp_path, shell, "pgtrickle", "show", "sa") == ["sales"]
    offered = complete(installed, tmp_path, shell, "pgtrickle", "show", "pub")
    assert list(tmp_path.iterdir()) == []
    assert offered == ["public.sales"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_scripts_of_completion_ask_the_command(installed: Database, shell: str) -> None:
    """Where the shell is not installed: the script and the text that it evaluates have every command."""
    assert f"_PGTRICKLE_COMPLETE=complete_{shell}" in pgtrickle(installed, "completion", shell).stdout
    asked = {"_PGTRICKLE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "pgtrickle "}
    done = subprocess.run(
        [Path(sys.executable).parent / "pgtrickle"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **asked, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    )
    offered = set(re.findall(r'^(?:_arguments .*\(\()?"?(\w+)["\t]', done.stdout, re.MULTILINE))
    assert offered == ALL_COMMANDS


def test_each_exit_status_is_documented_and_happens(installed: Database) -> None:
    page = PAGE.read_text()
    for status, meaning in MEANINGS.items():
        assert f"| {status} | {meaning} |" in page
    assert pgtrickle(installed, "list").returncode == 0
    assert pgtrickle(installed, "show", "nothing").returncode == 1
    assert pgtrickle(installed, "show").returncode == 2
    assert pgtrickle(installed, "list", "--server", "postgresql://127.0.0.1:1/x").returncode == 75
    installed.sql("CREATE TABLE t (a int)")
    installed.connect(application_name="pgtrickle/scheduler")  # one that does nothing
    create = ["create", "s", "--query", "SELECT a FROM t", "--wait"]
    assert on_terminal(installed, create, [("waiting for the control plane", "\x03")])[0] == 130
