"""The reference page has everything that a database with pgtrickle offers."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from pgtrickle.db import connect
from tests.conftest import Database


def docs_script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "docs.py"
    spec = importlib.util.spec_from_file_location("docs_script", path)
    assert spec is not None
    assert spec.loader is not None
    docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(docs)
    return docs


def test_every_public_object_is_in_the_reference(installed: Database) -> None:
    docs = docs_script()
    with connect(installed.dsn, role="test") as conn:
        page = docs.sql_page(conn)
    names = installed.sql(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'pgtrickle'::regnamespace "
        "UNION SELECT relname FROM pg_class WHERE relnamespace = 'pgtrickle'::regnamespace AND relkind IN ('r', 'v')"
    )
    public = {name for (name,) in names if not name.startswith("_")}
    assert {line.removeprefix("### ") for line in page.splitlines() if line.startswith("### ")} == public
    assert "None" not in page
    assert "\n    refresh_timeline(max_rows integer DEFAULT 50)\n    -> TABLE(start_time timestamp" in page


def test_every_command_is_in_the_reference() -> None:
    page = docs_script().commands_page()
    for command in ("install", "run", "apply", "export", "verify"):
        assert f"\n## {command}\n\n    Usage: pgtrickle {command} " in page
    assert "--prune" in page
