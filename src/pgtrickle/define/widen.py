"""Follows source columns whose type became wider: varchar(10) to varchar(20), numeric(8,2) to numeric(12,2).

    ALTER TABLE customer ALTER COLUMN name TYPE varchar(20)   -- by a user; every value stays as it is
    ALTER TABLE big_customers ALTER COLUMN name TYPE varchar(20)   -- by pgtrickle, for a stream table that shows it

A stream table is an ordinary table, so its columns have to become wider before a longer value arrives. PostgreSQL only
changes the catalog for that and does not rewrite the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db import catalog, translated
from pgtrickle.db.connect import detail_of
from pgtrickle.db.lock_retry import LOCK_TIMEOUT_MS
from pgtrickle.db.statements import statement
from pgtrickle.errors import DefinitionError, SourceChangedError
from pgtrickle.model.identifiers import qualified, quote_ident, quote_literal
from pgtrickle.telemetry import COLUMNS_WIDENED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.model.catalog import StreamTable

log = logging.getLogger(__name__)

COLUMN_IN_USE = ("0A000", "42P17")  # a view shows the column, for example, or it is the key of partitions
NO_MODIFIER = -1
_VARCHAR, _VARBIT, _NUMERIC = 1043, 1562, 1700
_TIMES = (1083, 1114, 1184, 1266)  # time, timestamp, timestamptz, timetz: the modifier is the number of digits
_NUMERIC_HEADER = 4  # the modifier of numeric(p,s) is (p << 16 | s) + 4


@dataclass(frozen=True, slots=True)
class WiderColumn:
    """A column of a stream table, by its position in the query, and its new type."""

    position: int
    name: str
    type: str
    typmod: int


class ColumnsWidenedError(SourceChangedError):
    """Columns of the query have wider types than the columns of the stream table."""

    code = "PGT206"

    def __init__(self, message: str, columns: Sequence[WiderColumn], *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.columns = tuple(columns)


def is_wider(typid: int, old: int, new: int) -> bool:
    """Whether each value of a type with the modifier `old` is the same value, with the same text, with `new`."""
    if typid == _NUMERIC and NO_MODIFIER not in (old, new):
        return _scale(old) == _scale(new) and new > old
    if typid in (_VARCHAR, _VARBIT, _NUMERIC, *_TIMES):
        return old != NO_MODIFIER and (new == NO_MODIFIER or new > old)
    return False


def _scale(typmod: int) -> int:
    return (typmod - _NUMERIC_HEADER) & 0xFFFF


def widen_columns(conn: Connection, table: StreamTable, error: ColumnsWidenedError) -> StreamTable:
    """Changes the types of the stream table's columns, in its own database, and returns the table as the catalog has it
    then. Raises the error if something depends on a column, such as a view."""
    new_types = [f"{c.name} {c.type}" for c in error.columns]
    changes = [f"ALTER COLUMN {quote_ident(c.name)} TYPE {c.type}" for c in error.columns]
    try:
        with translated(), conn.transaction():
            parameters = {
                "id": table.pgt_id,
                "version": table.definition_version,
                "columns": json.dumps(
                    [{"position": c.position, "type": c.type, "typmod": c.typmod} for c in error.columns]
                ),
            }
            if conn.execute(statement("columns_widened"), parameters).rowcount:
                # Readers would queue behind this statement while it waits; the worker tries again later instead.
                conn.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                conn.execute(f"ALTER TABLE {qualified(table.schema, table.name)} {', '.join(changes)}")
            (widened,) = catalog.load_stream_tables(conn, [table.pgt_id])
    except DefinitionError as refused:
        if refused.sqlstate not in COLUMN_IN_USE:
            raise
        detail = detail_of(refused) or refused.message
        resume = f"SELECT pgtrickle.resume_stream_table({quote_literal(qualified(table.schema, table.name))})"
        raise SourceChangedError(
            f"{error.message}, and its column cannot be changed: {detail}",
            hint=f"drop what depends on the column, then {resume}",
        ) from error
    log.info(
        "Columns became wider with those of a source",
        extra=event(COLUMNS_WIDENED, table=table.full_name, detail=", ".join(new_types)),
    )
    return widened
