"""Writes the definitions of databases to files for which `apply` finds no changes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pgtrickle.db import translated
from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.db.discover import in_database
from pgtrickle.definitions import present
from pgtrickle.definitions.definition import Option
from pgtrickle.definitions.fleet import Databases
from pgtrickle.definitions.sqlfile import joined_names, trimmed
from pgtrickle.errors import ConfigError, PgtrickleError

GROUPS_FILE = "pgtrickle.toml"
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Exported:
    """A stream table or, without a query, a refresh group, and the databases that have it in this form."""

    name: str
    query: str
    options: tuple[tuple[str, Option], ...]
    members: tuple[str, ...] = ()
    databases: tuple[str, ...] = ()


def collect(dsn: str, known: Databases) -> tuple[list[Exported], set[str]]:
    """All definitions in these databases, and the sets that they belong to."""
    databases_of: dict[tuple[str, str, tuple[tuple[str, Option], ...], tuple[str, ...]], list[str]] = {}
    sets: set[str] = set()
    for database, named in known.of(()).items():
        with (
            connect(in_database(dsn, database), role="export", pooler=TRANSACTION, as_service=False) as conn,
            translated(),
        ):
            if not present.require_ready(conn):
                if named:
                    raise ConfigError(f"pgtrickle is not installed in {database}", hint="run pgtrickle install for it")
                continue
            with conn.transaction(force_rollback=True):
                conn.execute("SET LOCAL search_path TO DEFAULT")
                for table in present.stream_tables(conn).values():
                    query = table.typed_query if table.is_cross_database else table.query
                    try:
                        if (
                            not table.is_cross_database
                            and present.normalised_again(conn, table, typed=True) == table.query
                        ):
                            query = table.typed_query  # still has the same meaning for the exporting role
                    except PgtrickleError:
                        pass  # it needs another search_path, names another database, or has another author
                    options = tuple(sorted(table.options.items()))
                    databases_of.setdefault((table.label, trimmed(query), options, ()), []).append(database)
                    sets |= {table.applied_from} - {None}  # type: ignore[arg-type]  # None is taken away
                for group in present.groups(conn).values():
                    databases_of.setdefault(
                        (group.name, "", (("isolation", group.isolation),), group.members), []
                    ).append(database)
    return [Exported(*key, tuple(databases)) for key, databases in databases_of.items()], sets


def files_of(exported: Iterable[Exported], sets: Iterable[str], *, name_databases: bool) -> dict[str, str]:
    """File name -> content. Definitions whose texts do not fit into comment lines are in the TOML file."""
    files: dict[str, str] = {}
    names = [item.name for item in exported if item.query]
    blocks: list[str] = []
    for item in exported:
        databases = item.databases if name_databases else ()
        if not item.query:
            blocks.append(_block("refresh_group", item, databases))
        elif any(_CONTROL.search(text) or "\n" in text for text in (item.name, *databases)) or _CONTROL.search(
            item.query
        ):
            blocks.append(_block("stream_table", item, databases))
        else:
            stem = _file_stem(item.name) + (f".{_file_stem(item.databases[0])}" if names.count(item.name) > 1 else "")
            files[_unused_name(files, stem)] = _sql(item, databases)
    set_names = sorted(sets)
    if len(set_names) == 1:
        blocks.insert(0, f"set = {_quoted(set_names[0])}\n")
    if blocks:
        files[GROUPS_FILE] = "\n".join(blocks)
    return files


def _sql(item: Exported, databases: Sequence[str]) -> str:
    lines = [f"-- name: {item.name}"]
    if databases:
        lines.append(f"-- databases: {joined_names(tuple(databases))}")
    lines += [f"-- {key}: {_text(value)}" for key, value in item.options]
    return "\n".join([*lines, "", item.query, ""])


def _block(kind: str, item: Exported, databases: Sequence[str]) -> str:
    values: dict[str, object] = {"name": item.name, "query": item.query, "members": list(item.members)}
    values |= dict(item.options) | {"databases": list(databases)}
    return "\n".join([f"[[{kind}]]", *(f"{key} = {_quoted(value)}" for key, value in values.items() if value), ""])


def _text(value: Option) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _quoted(value: object) -> str:
    """A value in TOML: the same as JSON, except that TOML requires DEL to be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _file_stem(name: str) -> str:
    return re.sub(r"[^\w.-]+", "_", name).strip("._") or "stream_table"


def _unused_name(files: Mapping[str, str], stem: str) -> str:
    name, number = f"{stem}.sql", 1
    while name.lower() in (taken.lower() for taken in files):
        number += 1
        name = f"{stem}_{number}.sql"
    return name
