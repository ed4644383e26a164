"""The lists of files in CONTRIBUTING.md name files that exist, and names that are in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (ROOT, ROOT / "src" / "pgtrickle")
_TASKS = (ROOT / "CONTRIBUTING.md").read_text().partition("## Files to touch")[2].partition("## Rules")[0]
_FILE = re.compile(r"`([\w/]+(?:\.\w+|/))`(?: \(`(\w+)`\))?")
NAMED = sorted({(m[1], m[2]) for m in _FILE.finditer(_TASKS) if "/" in m[1] or m[1].endswith((".py", ".md"))}, key=str)


def test_five_tasks_have_a_list() -> None:
    tasks = re.findall(r"^\*\*(.+?)\.?\*\*", _TASKS, re.M)
    assert {"Add an aggregate", "Add a setting", "Add a command", "Fix a bug in a wave", "Add an engine"} <= set(tasks)
    assert len(NAMED) > 25


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_files_of_a_task_exist(path: str, name: str | None) -> None:
    found = [place / path for place in PLACES if (place / path).exists()]
    assert found, path
    if name is not None:
        assert re.search(rf"\b{name}\b", found[0].read_text()), name
