"""What the log looks like, and what never appears in it."""

from __future__ import annotations

import ast
import io
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtrickle import telemetry
from pgtrickle.telemetry import event, redact, set_up_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    hooks = sys.excepthook, threading.excepthook
    yield
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def test_json_lines_carry_event_and_fields() -> None:
    stream = io.StringIO()
    set_up_logging("info", "json", stream)
    logging.getLogger("pgtrickle.x").info("refresh is done", extra=event("pipeline.refresh_done", rows=3, name="n"))
    line = json.loads(stream.getvalue())
    assert (line["event"], line["rows"], line["name"], line["message"]) == (
        "pipeline.refresh_done",
        3,
        "n",
        "refresh is done",
    )


def test_text_lines_are_one_line() -> None:
    stream = io.StringIO()
    set_up_logging("info", "text", stream)
    logging.getLogger("pgtrickle.x").warning("it broke", extra=event("a.b", error="two\nlines"))
    assert stream.getvalue().endswith("WARNING it broke [a.b] error=two lines\n")


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@host/db",
        "host=x password=hunter2 user=me",
        "host=x password='hunter2 x' user=me",
        "sc://localhost:1/;token=hunter2",
    ],
)
def test_redact_removes_secrets(text: str) -> None:
    assert "hunter2" not in redact(text)
    assert "***" in redact(text)


def test_every_event_has_a_constant_and_every_constant_an_event() -> None:
    known = {name for name in vars(telemetry) if name.isupper() and not name.startswith("_")}
    used: set[str] = set()
    literal: list[str] = []
    for path in Path(telemetry.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "event":
                literal += [str(path)] if not isinstance(node.args[0], ast.Name) else []
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used.add(node.id)
    assert literal == []
    assert known - used == set()


def in_process(code: str) -> tuple[list[str], list[str]]:
    """Lines of standard output and standard error of a process of its own: the hooks are those of the process."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_loggers_stay_ours_while_spark_replaces_their_class() -> None:
    """As when a thread imports a module of ours in the moment in which another one creates a logger of Spark."""
    _, lines = in_process(
        "import logging\n"
        "from pyspark.logger import PySparkLogger\n"
        "from pgtrickle.telemetry import event, set_up_logging, REFRESH_DONE\n"
        "logging.setLoggerClass(PySparkLogger)\n"
        "set_up_logging('info', 'json')\n"
        "log = logging.getLogger('pgtrickle.dispatch.worker')\n"
        "log.info('Refreshed', extra=event(REFRESH_DONE, table='t', action='FULL', inserted=3, ms=4))\n"
        "PySparkLogger.getLogger('OfSpark').warning('Slow', file='x.py')\n"
    )
    ours, of_spark = map(json.loads, lines)
    assert (ours["message"], ours["table"], ours["action"], ours["inserted"], ours["ms"]) == (
        "Refreshed",
        "t",
        "FULL",
        3,
        4,
    )
    assert (of_spark["message"], of_spark["logger"], of_spark["file"]) == ("Slow", "OfSpark", "x.py")


def test_a_json_log_has_nothing_but_json() -> None:
    _, lines = in_process(
        "import threading, warnings\n"
        "from pgtrickle.telemetry import set_up_logging\n"
        "set_up_logging('info', 'json')\n"
        "warnings.warn('old')\n"
        "def fail(): raise ValueError('in a thread')\n"
        "thread = threading.Thread(target=fail); thread.start(); thread.join()\n"
        "raise ValueError('at\\nthe end')\n"
    )
    warned, in_thread, at_end = map(json.loads, lines)
    assert "old" in warned["message"]
    assert in_thread["event"] == at_end["event"] == "runtime.uncaught"
    assert "in a thread" in in_thread["traceback"]
    assert "at\nthe end" in at_end["traceback"]


def test_repeated_lines_are_collapsed_and_counted() -> None:
    stream = io.StringIO()
    set_up_logging("info", "json", stream)
    log = logging.getLogger("pgtrickle.x")

    def say(at: float, name: str = telemetry.REFRESH_FAILED, **fields: object) -> None:
        record = log.makeRecord(log.name, logging.WARNING, "f", 1, "Failed", (), None, extra=event(name, **fields))
        record.created = at
        log.handle(record)

    for at in (0.0, 1.0, 3.0, 7.0):
        say(at, table="a")
    say(8.0, table="b")
    say(61.0, table="a")
    for at in (70.0, 71.0):
        say(at, telemetry.REFRESH_DONE, table="a")
    say(72.0, table="b")
    logging.getLogger().handlers[0].close()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["table"], line["event"].rpartition(".")[2], line.get("repeated")) for line in lines] == [
        ("a", "refresh_failed", None),
        ("b", "refresh_failed", None),
        ("a", "refresh_failed", 3),  # those until 60 s
        ("a", "refresh_failed", None),
        ("a", "refresh_done", None),  # each refresh is a fact
        ("a", "refresh_done", None),
        ("b", "refresh_failed", None),
    ]
