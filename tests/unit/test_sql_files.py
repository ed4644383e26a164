"""The SQL files of the package: each is run, found by one name, and readable."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pgtrickle.db import statement
from pgtrickle.db.statements import INSTALL_ORDER
from pgtrickle.errors import InvariantError

PACKAGE = Path(__file__).parents[2] / "src" / "pgtrickle"
SQL = PACKAGE / "db" / "sql"
MOST_CHARACTERS = 160
QUERIES = sorted(SQL.joinpath("queries").rglob("*.sql"))


def test_install_runs_every_script_once() -> None:
    scripts = [str(f.relative_to(SQL / "install").with_suffix("")) for f in SQL.joinpath("install").rglob("*.sql")]
    assert sorted(INSTALL_ORDER) == sorted(scripts)


def test_no_line_is_too_long_to_read() -> None:
    lines = [(f, n, line) for f in SQL.rglob("*.sql") for n, line in enumerate(f.read_text().splitlines(), 1)]
    assert not [f"{f.relative_to(SQL)}:{n}" for f, n, line in lines if len(line) > MOST_CHARACTERS]


def test_queries_have_unique_names_and_lie_in_the_folder_of_a_stage() -> None:
    assert len({f.stem for f in QUERIES}) == len(QUERIES)
    assert {f.parent.parent for f in QUERIES} == {SQL / "queries"}


@pytest.mark.parametrize("file", QUERIES, ids=lambda f: f.stem)
def test_query_has_a_header_and_a_caller(file: Path) -> None:
    assert statement(file.stem).startswith("--")
    mentioned = re.compile(rf"""["']{file.stem}["']""")
    callers = [f for f in PACKAGE.rglob("*.py") if mentioned.search(f.read_text())]
    # db/author.py composes the names of its two.
    assert callers or file.stem in {"author_run", "author_describe"}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvariantError, match="no SQL statement named nothing"):
        statement("nothing")


# Columns of pg_catalog that PostgreSQL 13 lacks. `to_jsonb(row) ->> 'name'` is NULL there; a statement that names the
# column fails, in a function even where it would not be evaluated.
LATER_COLUMNS = (
    "attcompression", "collicurules", "colllocale", "conenforced", "conperiod", "datcollversion", "datlocale",
    "datlocprovider", "inactive_since", "indnullsnotdistinct", "pnnspid", "prattrs", "prosqlbody", "prqual",
    "pubgencols", "query_id", "rngmultitypid", "stxdexpr", "stxexprs", "subtwophasestate", "typsubscript",
    "waitstart",
)  # fmt: skip


@pytest.mark.parametrize("file", sorted(SQL.rglob("*.sql")), ids=lambda f: f.stem)
def test_no_statement_needs_a_column_of_a_later_postgresql(file: Path) -> None:
    text = re.sub(r"--.*", "", file.read_text())
    assert re.findall(rf"\b\w+\.(?:{'|'.join(LATER_COLUMNS)})\b", text) == []


# Why a statement over tables that have names stays in a module. No new ones: they go to sql/queries.
INLINE = {
    "db/connect.py": "names the kind of membership, which depends on the version of PostgreSQL",
    "demo/run.py": "the demo reads the history as its users do",
    "demo/view.py": "the demo reads the history as its users do",
    "refresh/pending.py": "composed for the columns of each reader",
    "refresh/recompute.py": "sent with others in one round trip, with numbered parameters",
}
_READS_OR_WRITES = re.compile(r"\s*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH)\b")
_NAMED_TABLE = re.compile(
    r"(?:\bFROM|\bJOIN|\bINTO|^\s*UPDATE)\s+(?:ONLY\s+)?"
    r"(?:(?:pgtrickle|pgtrickle_changes|pg_catalog|information_schema)\.|pg_)\w++(?!\s*[.(])"
)


def _text(node: ast.AST) -> str:
    """Of a literal, with {} for what is computed."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or "{}" for value in values)
        case _:
            return ""


def test_statements_over_tables_are_in_files() -> None:
    """Utility statements, calls of functions and statements composed of identifiers may be inline."""
    inline = set()
    for path in PACKAGE.rglob("*.py"):
        texts = map(_text, ast.walk(ast.parse(path.read_text())))
        if any(_READS_OR_WRITES.match(text) and _NAMED_TABLE.search(text) for text in texts):
            inline.add(str(path.relative_to(PACKAGE)))
    assert inline == set(INLINE)
