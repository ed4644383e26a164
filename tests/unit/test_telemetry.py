"""What the log looks like, and what never appears in it."""

from __future__ import annotations

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgtrickle import telemetry
from pgtrickle.telemetry import event, redact, set_up_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
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
