"""Where a refresh writes: the stream table, its state beside it, and how carried rows become stored ones.

A row travels as one text, PostgreSQL's array of its columns' texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.model.catalog import REGION, Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import as_text, from_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class Target:
    """A stream table's storage. `lookups`: columns by which refreshes find its rows.

    `is_mirror`: nothing is computed for it, so the database itself gives its rows their identity. `key`: columns that
    have no NULL and a unique index, by which rows are found instead of by their identity.
    """

    pgt_id: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    lookups: tuple[str, ...] = ()
    is_mirror: bool = False
    key: tuple[str, ...] = ()
    texts: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)  # of its statements

    @property
    def table(self) -> str:
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}"

    @property
    def state(self) -> str:
        return f'"pgtrickle_changes"."state_{self.pgt_id}"'

    def text(self, name: str, made: Callable[[], str]) -> str:
        """A statement that is the same each time."""
        text = self.texts.get(name)
        if text is None:
            text = self.texts[name] = made()
        return text

    def column_list(self) -> str:
        return ", ".join([*(quote_ident(c.name) for c in self.columns), '"__pgt_row_id"'])

    def decoded(self, array: str) -> str:
        """The columns of a carried row, cast back to their types."""
        return "".join(f"{from_text(f'{array}[{i}]', c.type, c.base)}, " for i, c in enumerate(self.columns, start=1))

    def found_by(self, stored: str, carried: str) -> str:
        """A condition with an index: that a stored row may be the one that `carried` (h, a) stands for."""
        if not self.key:
            return f"{stored}.__pgt_row_id = {carried}.h"
        places = {c.name: (i, c) for i, c in enumerate(self.columns, start=1)}
        wanted = {name: from_text(f"{carried}.a[{i}]", c.type, c.base) for name, (i, c) in places.items()}
        return " AND ".join(f"{stored}.{quote_ident(name)} = {wanted[name]}" for name in self.key)

    def encoded(self, alias: str) -> str:
        """A stored row in the form in which it travels.

        Equal texts are the same row to the byte, which is finer than equality, so the wrong row is never taken.
        """
        texts = ", ".join(as_text(f"{alias}.{quote_ident(c.name)}", c.base) for c in self.columns)
        return f'ARRAY[{texts}]::text[]::text COLLATE "C"'


def own_identity(row: str) -> str:
    """The identity that a mirror's row has by its text."""
    return f'pg_catalog.hashtextextended({row} COLLATE "C", 0)'


def reshape(conn: Connection, target: Target) -> None:
    """Before a load is written: the columns of the definition, and the hidden one that regions need."""
    conn.execute("SELECT pgtrickle._reshape(%s)", (target.pgt_id,))
    _index(conn, target)
    wanted = any(c.name == REGION for c in target.columns)
    row = conn.execute(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute WHERE attrelid = %s::pg_catalog.regclass AND attname = %s)",
        (target.table, REGION),
    ).fetchone()
    if row is None or bool(row[0]) == wanted:
        return
    if not wanted:
        conn.execute(f"ALTER TABLE {target.table} DROP COLUMN {quote_ident(REGION)}")
        return
    conn.execute(f'ALTER TABLE {target.table} ADD COLUMN {quote_ident(REGION)} text COLLATE "C"')
    # By hash: the text of a key may be too long for an index.
    conn.execute(f"CREATE INDEX ON {target.table} (pg_catalog.hashtextextended({quote_ident(REGION)}, 0))")


def _index(conn: Connection, target: Target) -> None:
    """The indexes by which refreshes find rows, and no others of ours. By hash: a value may be too long for a tree."""
    rows = conn.execute(
        "SELECT c.relname, a.attname FROM pg_catalog.pg_index AS i "
        "JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = %s::pg_catalog.regclass AND starts_with(c.relname, '__pgt_lookup_') ORDER BY 1",
        (target.table,),
    ).fetchall()
    if tuple(column for _, column in rows) == target.lookups:
        return
    for name, _ in rows:
        conn.execute(f"DROP INDEX {quote_ident(target.schema)}.{quote_ident(name)}")
    for position, column in enumerate(target.lookups):
        name = f"__pgt_lookup_{target.pgt_id}_{position}"
        conn.execute(f"CREATE INDEX {quote_ident(name)} ON {target.table} USING hash ({quote_ident(column)})")
