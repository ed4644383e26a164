"""PostgreSQL renders reasons from the templates that Python has. `make golden` rewrites its script."""

from __future__ import annotations

import os
from pathlib import Path

import pgtrickle.db
from pgtrickle.db.reason_templates import reasons_script

SCRIPT = Path(pgtrickle.db.__file__).parent / "sql" / "install" / "reasons" / "reasons.sql"


def test_the_script_has_the_templates() -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        SCRIPT.write_text(reasons_script())
    assert SCRIPT.read_text() == reasons_script()
