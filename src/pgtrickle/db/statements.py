"""SQL of the package, by name. Each file opens with a comment that says what it does, its parameters and its result."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from pgtrickle.errors import InvariantError


@cache
def statement(name: str) -> str:
    """The statement in sql/queries/<name>.sql."""
    try:
        text = files("pgtrickle.db").joinpath("sql", "queries", f"{name}.sql").read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InvariantError(f"no SQL statement named {name}") from None
    if not text.startswith("--"):
        raise InvariantError(f"SQL statement {name} has no header comment")
    return text


def scripts(folder: str) -> list[tuple[str, str]]:
    """(file name, text) of all scripts in sql/<folder>/, in the order of their names."""
    found = [f for f in files("pgtrickle.db").joinpath("sql", folder).iterdir() if f.name.endswith(".sql")]
    return [(f.name, f.read_text(encoding="utf-8")) for f in sorted(found, key=lambda f: f.name)]
