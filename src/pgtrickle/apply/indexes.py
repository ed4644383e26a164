"""The indexes that refreshes use to find rows. A load creates missing ones after it has written the rows: with an
existing index it takes three times as long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle.apply.target import Target
from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import REGION
from pgtrickle.model.identifiers import quote_ident

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

ROW_ID = "__pgt_row_id"
_LOOKUP = "__pgt_lookup_"


def index_rows(conn: Connection, target: Target) -> None:
    """Creates the indexes of a stream table: on the identity of rows (for a mirror its definition creates it if
    needed), on keys of regions, and on the columns by which its template finds rows."""
    if not target.is_mirror:
        ensure_index(conn, target.table, ROW_ID)
    if any(c.name == REGION for c in target.columns):
        _index_regions(conn, target)
    _index_lookups(conn, target)


def ensure_index(conn: Connection, table: str, column: str, *, is_unique: bool = False) -> None:
    row = conn.execute(statement("has_index"), {"table": table, "column": column}).fetchone()
    if row is not None and not row[0]:
        conn.execute(f"CREATE {'UNIQUE ' if is_unique else ''}INDEX ON {table} ({quote_ident(column)})")


def _index_regions(conn: Connection, target: Target) -> None:
    indexed = {"table": target.table, "expression": f"hashtextextended({REGION}"}
    row = conn.execute(statement("has_index_over"), indexed).fetchone()
    if row is not None and not row[0]:
        # On a hash: the text of a key may be too long for an index.
        conn.execute(f"CREATE INDEX ON {target.table} (pg_catalog.hashtextextended({quote_ident(REGION)}, 0))")


def _index_lookups(conn: Connection, target: Target) -> None:
    """Creates these and drops our others. Hash indexes, because a value may be too long for a B-tree."""
    rows = conn.execute(statement("lookup_indexes"), {"table": target.table}).fetchall()
    if tuple(column for _, column in rows) == target.lookups:
        return
    for name, _ in rows:
        conn.execute(f"DROP INDEX {quote_ident(target.schema)}.{quote_ident(name)}")
    for position, column in enumerate(target.lookups):
        name = f"{_LOOKUP}{target.pgt_id}_{position}"
        conn.execute(f"CREATE INDEX {quote_ident(name)} ON {target.table} USING hash ({quote_ident(column)})")
