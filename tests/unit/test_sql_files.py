"""The SQL files of the package: each is run, found by one name, and readable."""

from __future__ import annotations

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
