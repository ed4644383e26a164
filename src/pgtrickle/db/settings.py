"""Our settings in a database: postgresql.conf, ALTER DATABASE, ALTER ROLE, pgtrickle.set_option()."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, fields

from pgtrickle.db.connect import TRANSACTION, Connection, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.settings import ALIASES, DATABASE_ORIGINS, DATABASE_PREFIX, SERVER, Settings

_NAMES = tuple(DATABASE_PREFIX + name for name in (*(f.name for f in fields(Settings)), *ALIASES))
_SERVER_RANK = 1 + DATABASE_ORIGINS.index(SERVER)
_CONNECTION_RANK = len(DATABASE_ORIGINS)
# -c name=value and --name=value of the connection's `options`; a backslash escapes the next character.
_OPTION = re.compile(r"(?:-c\s*|--)([\w.-]+)=((?:\\.|[^\\\s])*)")


@dataclass(frozen=True, slots=True)
class StoredSettings:
    """The value per setting (without its prefix) and rank; rank 1 is the first of DATABASE_ORIGINS."""

    values: Mapping[str, Mapping[int, str]]
    files_read_at: str
    as_of: float = 0.0  # since when the session has the server's values, in seconds since the epoch

    def stored(self) -> frozenset[str]:
        """Values of ALTER DATABASE and ALTER ROLE, which take precedence over the server's value."""
        return frozenset(
            name for name, by_rank in self.values.items() if any(_SERVER_RANK < r < _CONNECTION_RANK for r in by_rank)
        )

    def with_server(self, names: frozenset[str], other: StoredSettings) -> StoredSettings:
        """The same, with server values of some settings that another session has read."""
        merged = dict(self.values)
        for name in names:
            kept = {rank: value for rank, value in merged.get(name, {}).items() if rank != _SERVER_RANK}
            value = other.values.get(name, {}).get(_SERVER_RANK)
            merged[name] = kept if value is None else {**kept, _SERVER_RANK: value}
        return StoredSettings(merged, self.files_read_at, self.as_of)

    def winners(self) -> dict[str, tuple[str, str]]:
        """(value, one of DATABASE_ORIGINS) by setting."""
        best = {name: max(by_rank.items()) for name, by_rank in self.values.items() if by_rank}
        # An empty text means "not set": a parameter that was set and reset is empty.
        return {name: (value, DATABASE_ORIGINS[rank - 1]) for name, (rank, value) in best.items() if value != ""}


def has_options(connection: Connection) -> bool:
    with translated():
        row = connection.execute(statement("has_options")).fetchone()
    return bool(row and row[0])


def read_settings(connection: Connection, *, options: bool, further: tuple[str, ...] = ()) -> StoredSettings:
    """`options`: pgtrickle.pgt_settings exists. `further`: additional names to read."""
    text = statement("settings")
    if options:
        text += "\nUNION ALL\n" + statement("settings_options")
    names = {"names": [*_NAMES, *further]}
    is_pooled = pooler_of(connection) == TRANSACTION
    with translated(), connection.transaction() if is_pooled else nullcontext():
        if is_pooled:  # a value that another client has SET is not the server's
            connection.execute(statement("settings_reset"), names)
        rows = connection.execute(text, names).fetchall()
    values: dict[str, dict[int, str]] = {}
    files_read_at, as_of = "", 0.0
    for rank, name, value in rows:
        if rank == 0:
            files_read_at = value
        elif rank == -1:
            as_of = float(value)
        else:
            values.setdefault(_plain(name), {})[rank] = value
    for name, value in _OPTION.findall(connection.info.options):
        if name.lower().startswith(DATABASE_PREFIX):
            values.setdefault(_plain(name), {})[_CONNECTION_RANK] = re.sub(r"\\(.)", r"\1", value)
    return StoredSettings(values, files_read_at, as_of)


def names_in_files(connection: Connection) -> tuple[str, ...]:
    """Names of our settings in postgresql.conf, also unknown ones. Only superusers can read them; others get none."""
    with translated():
        row = connection.execute(statement("may_read_files")).fetchone()
        if not (row and row[0]):
            return ()
        rows = connection.execute(statement("names_in_files")).fetchall()
    return tuple(name for (name,) in rows)


def _plain(name: str) -> str:
    name = name.lower().removeprefix(DATABASE_PREFIX)
    return ALIASES.get(name, name)
