"""Applies a set to one database, in the caller's transaction.

A plan is the same work, rolled back: PostgreSQL itself has then checked every query against the others of the set,
every option and every privilege. Only drops are checked by lookups instead, because they would block readers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pgtrickle.db import Connection, translated
from pgtrickle.definitions.changes import Change
from pgtrickle.definitions.definition import Definition, GroupDefinition
from pgtrickle.definitions.groups import GroupWork
from pgtrickle.definitions.tables import Policy, TableWork

_LOCK = 0x7067_6465  # "pgde": one apply per database at a time


@dataclass(frozen=True, slots=True)
class ApplyChanges:
    changes: tuple[Change, ...]
    unchanged: int
    left: tuple[str, ...]
    warnings: tuple[str, ...]


def apply_set(
    conn: Connection,
    set_name: str,
    definitions: Iterable[Definition],
    groups: Iterable[GroupDefinition],
    policy: Policy,
    *,
    dry: bool,
) -> ApplyChanges:
    """Raises an error at the first definition that PostgreSQL refuses; the caller then rolls back."""
    with translated():
        conn.execute("SELECT pgtrickle._require_primary()")
        # Names in queries are resolved as in psql with this role.
        conn.execute("SET LOCAL search_path TO DEFAULT")
        conn.execute("SET LOCAL lock_timeout = '60s'")
        conn.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [_LOCK])
        # While we wait for a lock, other sessions must not queue behind us for long.
        conn.execute("SET LOCAL lock_timeout = '10s'")
        table_work = TableWork(conn, set_name, definitions, policy)
    table_work.create_and_alter()
    with translated():
        group_work = GroupWork(conn, set_name, groups, prune=policy.prune, adopt=policy.adopt)
    group_work.begin()
    with translated():
        left = table_work.drop_undefined(dry=dry, needed=group_work.members())
    group_work.finish()
    changes = table_work.changes() + group_work.changes
    unchanged = sum(change is None for change in table_work.done.values())
    return ApplyChanges(tuple(changes), unchanged + group_work.unchanged, left, tuple(table_work.warnings()))
