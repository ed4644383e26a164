"""The import contracts of pyproject.toml cover what the modules claim."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "pgtrickle"


def test_every_module_that_claims_to_be_pure_is_in_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [c for c in contracts if c["name"].startswith("Pure modules")]
    claimed = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if re.search(r"\bPure\b", ast.get_docstring(ast.parse(path.read_text())) or ""):
            claimed.append(".".join(path.relative_to(ROOT / "src").with_suffix("").parts))
    assert claimed
    missing = [m for m in claimed if not any(m == s or m.startswith(f"{s}.") for s in contract["source_modules"])]
    assert missing == []
