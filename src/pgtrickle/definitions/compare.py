"""Compares the definition in a file with the one in a database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgtrickle.db import Connection
from pgtrickle.definitions import present
from pgtrickle.definitions.changes import OptionChange
from pgtrickle.definitions.definition import DEFAULTS, Definition, Option
from pgtrickle.definitions.present import PendingTable, StoredTable
from pgtrickle.definitions.sqlfile import trimmed
from pgtrickle.errors import PgtrickleError

_NOT_COMPARED = ("initialize", "applied_from")


def non_default(options: Mapping[str, Option]) -> dict[str, Option]:
    """The stored options whose value is not the default."""
    return {key: value for key, value in options.items() if key not in _NOT_COMPARED and DEFAULTS.get(key) != value}


@dataclass(frozen=True, slots=True)
class Alteration:
    """How to alter a table. `query` is None if the query is unchanged."""

    query: str | None
    options: tuple[OptionChange, ...]

    @property
    def is_empty(self) -> bool:
        return self.query is None and not self.options

    @property
    def unset(self) -> list[str]:
        """Options whose value is removed, and that have no default."""
        return [d.option for d in self.options if d.after is None and d.option not in DEFAULTS]

    def arguments(self, definition: Definition) -> dict[str, Option]:
        """The arguments for alter_stream_table()."""
        unset = self.unset
        assigned = [d for d in self.options if d.option not in unset]
        arguments = {d.option: DEFAULTS[d.option] if d.after is None else d.after for d in assigned}
        return arguments if self.query is None else {**arguments, "query": definition.query}


def differences(old: Mapping[str, Option], new: Mapping[str, Option]) -> tuple[OptionChange, ...]:
    return tuple(
        OptionChange(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def new_query(conn: Connection, current: StoredTable, definition: Definition) -> str | None:
    """The new query as PostgreSQL parses it; None if it is equivalent to the old one."""
    try:
        new = present.normalised(conn, definition.query)
    except PgtrickleError as error:
        # PostgreSQL cannot parse names of tables in other databases: compare the texts.
        if error.sqlstate != "0A000" or not re.search(r'".+\..+\..+"', error.message):
            raise
        return None if trimmed(current.typed_query) == definition.query else definition.query
    if current.is_renamed:
        return new  # names in the stored text mean other relations now
    if new == current.query:
        return None
    try:
        # An earlier version of PostgreSQL may have written the stored query, or it may name mirrors.
        old = present.normalised_again(conn, current, typed=current.is_cross_database)
    except PgtrickleError:
        return new  # the old one no longer works, or belongs to another author
    return None if old == new else new


def is_requested(request: PendingTable, definition: Definition, options: Mapping[str, Option]) -> bool:
    """Whether exactly this definition was requested from the control plane and is still pending."""
    same = trimmed(request.query) == definition.query and non_default(request.options) == non_default(options)
    return same and request.refusal is None


def as_requested(current: StoredTable, request: PendingTable | None) -> StoredTable:
    """A stream table as it will be when the control plane has accepted the request."""
    if request is None or request.refusal is not None:
        return current
    options = non_default({**current.options, **request.options})
    return replace(current, query=request.query, typed_query=request.query, options=options, is_cross_database=True)
