"""Compares the definition in a file with the one in a database."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgtrickle.db import Connection
from pgtrickle.definitions import present
from pgtrickle.definitions.changes import OptionChange
from pgtrickle.definitions.present import PendingTable, StoredTable
from pgtrickle.definitions.sqlfile import trimmed
from pgtrickle.definitions.wanted import DEFAULTS, Definition, Option
from pgtrickle.errors import PgtrickleError

_SAID_ONCE = ("initialize", "applied_from")


def stored(options: Mapping[str, Option]) -> dict[str, Option]:
    """Options that are stored and not the default."""
    return {key: value for key, value in options.items() if key not in _SAID_ONCE and DEFAULTS.get(key) != value}


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is to be altered of a table. `query` is None where that stays."""

    query: str | None
    options: tuple[OptionChange, ...]

    @property
    def is_empty(self) -> bool:
        return self.query is None and not self.options

    @property
    def unset(self) -> list[str]:
        """Options that are to have no value, which is not the same as their default."""
        return [d.option for d in self.options if d.after is None and d.option not in DEFAULTS]

    def arguments(self, definition: Definition) -> dict[str, Option]:
        """Of alter_stream_table()."""
        unset = self.unset
        given = [d for d in self.options if d.option not in unset]
        found = {d.option: DEFAULTS[d.option] if d.after is None else d.after for d in given}
        return found if self.query is None else {**found, "query": definition.query}


def differences(old: Mapping[str, Option], new: Mapping[str, Option]) -> tuple[OptionChange, ...]:
    return tuple(
        OptionChange(key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def new_query(conn: Connection, have: StoredTable, definition: Definition) -> str | None:
    """The new query as PostgreSQL parses it; None if it is equivalent to the old one."""
    try:
        new = present.normalised(conn, definition.query)
    except PgtrickleError as error:
        # This server cannot parse tables of other databases: compared as typed.
        if error.sqlstate != "0A000" or not re.search(r'".+\..+\..+"', error.message):
            raise
        return None if trimmed(have.typed_query) == definition.query else definition.query
    if have.is_renamed:
        return new  # the old text has another meaning now
    if new == have.query:
        return None
    try:
        # It may have been written by an earlier version of PostgreSQL, or over mirrors.
        old = present.normalised_again(conn, have, typed=have.elsewhere)
    except PgtrickleError:
        return new  # the old one no longer works, or belongs to another author
    return None if old == new else new


def is_asked(asked: PendingTable, definition: Definition, options: Mapping[str, Option]) -> bool:
    """Whether exactly this definition was requested from the control plane and is still pending."""
    same = trimmed(asked.query) == definition.query and stored(asked.options) == stored(options)
    return same and asked.refusal is None


def as_asked(have: StoredTable, asked: PendingTable | None) -> StoredTable:
    """A stream table as it will be when the control plane has accepted the request."""
    if asked is None or asked.refusal is not None:
        return have
    options = stored({**have.options, **asked.options})
    return replace(have, query=asked.query, typed_query=asked.query, options=options, elsewhere=True)
