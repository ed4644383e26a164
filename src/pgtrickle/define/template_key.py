"""What the compiled form of a stream table follows from, as a digest: equal digests, equal templates (ADR 34).

Relations and stream tables have other numbers in another database. They are not part of the digest: a stored template
names them by their roles (`ids`), and whoever loads it puts in the numbers of its own database.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from pgtrickle import __version__
from pgtrickle.db import catalog
from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import Relation, StreamTable
from pgtrickle.model.texts import FIRST_OF_USERS

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pgtrickle.db.connect import Connection

# Packages whose code decides what is compiled; a stored template consists of their values.
COMPILER = ("model", "db", "pipeline", "apply", "define")
OWN_SCHEMAS = ("pgtrickle", "pgtrickle_changes")
NUMBERED = re.compile(r"(?<![A-Za-z0-9])((?:__pgt_)?(?:changes|state)_)(\d+)(?!\d)")  # tables that are called by number


@dataclass(frozen=True, slots=True)
class TemplateKey:
    """`ids`: the numbers of the stream table and of the relations that it reads, by what they are called."""

    digest: str
    ids: Mapping[str, int]


@cache
def compiler_version() -> str:
    """Of the code of the compiler and of the Python that runs it: with any other one, templates are compiled again."""
    digest = hashlib.sha256(f"{__version__} {sys.version}".encode())
    for package in COMPILER:
        for path, content in _sources(files("pgtrickle") / package, package):
            digest.update(f"\0{path}\0".encode() + content)
    return digest.hexdigest()[:24]


def _sources(folder: Traversable, name: str) -> list[tuple[str, bytes]]:
    sources = []
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            sources += _sources(entry, f"{name}/{entry.name}")
        elif entry.name.endswith((".py", ".sql")):
            sources.append((f"{name}/{entry.name}", entry.read_bytes()))
    return sources


def template_key(conn: Connection, table: StreamTable) -> TemplateKey | None:
    """None: it depends on code, types, privileges or other databases, which the digest does not describe."""
    if not _is_self_contained(table):
        return None
    relations = catalog.relations(conn, [s.relid for s in table.sources])
    if len(relations) != len({s.relid for s in table.sources}) or not all(map(_is_plain, relations)):
        return None
    row = conn.execute(statement("template_facts"), {"relids": [r.relid for r in relations]}).fetchone()
    assert row is not None
    functions, has_operators, collations = row
    if has_operators and any(r.kind == "v" for r in relations):
        return None  # operators of a view are not named in its text
    ids = {"": table.pgt_id, **{f"{r.schema}.{r.name}": r.relid for r in relations}}
    facts = {
        "compiler": compiler_version(),
        "server": [conn.info.server_version, conn.info.parameter_status("server_encoding")],
        "table": _table_facts(table),
        "used": sorted([_name_of(s.relid, relations), s.type, sorted(s.columns)] for s in table.sources),
        "relations": sorted(([_relation_facts(r)] for r in relations), key=json.dumps),
        "functions": functions,
        "collations": collations,
    }
    text = json.dumps(facts, sort_keys=True)
    return None if NUMBERED.search(text) else TemplateKey(hashlib.sha256(text.encode()).hexdigest(), ids)


def _is_self_contained(table: StreamTable) -> bool:
    numbers = (*table.operators, *(c.typid for c in table.columns))
    has_own_code = table.code is not None or table.functions is not None
    return not (table.runs_as_author or has_own_code or any(n >= FIRST_OF_USERS for n in numbers))


def _is_plain(relation: Relation) -> bool:
    return relation.schema not in OWN_SCHEMAS and all(c.typid < FIRST_OF_USERS for c in relation.columns)


def _table_facts(table: StreamTable) -> list[Any]:
    mode = [table.refresh_mode, table.effective_mode, table.mode_reason and table.mode_reason.to_json()]
    columns = [[c.name, c.type, c.typid, c.typmod, c.not_null, c.basis] for c in table.columns]
    settings = sorted(table.session_settings.items())
    options = [table.mirror is not None, table.max_differential_joins]
    parts = [table.partition_column, table.partition_collation]
    return [table.schema, table.name, table.query, columns, mode, settings, list(table.operators), options, parts]


def _relation_facts(relation: Relation) -> list[Any]:
    columns = [[c.attnum, c.name, c.type, c.typid, c.typmod, c.not_null, c.basis, c.virtual] for c in relation.columns]
    shape = [relation.kind, relation.query, relation.has_children, list(relation.key), sorted(relation.indexed)]
    return [relation.schema, relation.name, columns, shape]


def _name_of(relid: int, relations: list[Relation]) -> str:
    return next(f"{r.schema}.{r.name}" for r in relations if r.relid == relid)
