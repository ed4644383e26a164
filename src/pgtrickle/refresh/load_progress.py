"""Shows how far a load is to whoever asks: `pgtrickle.load_progress()` reads it from the server's own statistics.

The writing session says in its application_name, until its transaction ends, which stream table it loads and what to
expect. That costs no commit, is visible to other sessions at once, and ends with the session, whatever happens.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from pgtrickle.model.identifiers import qualified

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.refresh.stages import PlannedRefresh

# Phases, as status/loads.sql reads them.
COMPUTE: Final = "c"  # the server computes the content into a staging table
COPY: Final = "r"  # rows from another session are copied into a staging table
WRITE: Final = "w"  # rows are written to the stream table

SLOW_MS = 1000.0  # a full refresh that took less is not announced: the estimate takes some milliseconds
MOST = 10**12  # so that all numbers fit into a name


def is_announced(planned: PlannedRefresh) -> bool:
    table = planned.table
    return not table.is_populated or (table.last_full_ms or 0.0) >= SLOW_MS


def announce(writer: Connection, planned: PlannedRefresh, phase: str, query: str) -> None:
    """Within a transaction of the writer, which evaluates the query."""
    if is_announced(planned):
        name(writer, planned, phase, *expected(writer, query))


def expected(conn: Connection, query: str) -> tuple[int, int]:
    """Rows and their width, as the planner estimates them."""
    row = conn.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchone()
    assert row is not None
    top = row[0][0]["Plan"]
    return int(top["Plan Rows"]), int(top["Plan Width"])


def name(writer: Connection, planned: PlannedRefresh, phase: str, rows: int, width: int, copied: int = 0) -> None:
    """`copied`: rows that earlier statements have copied; otherwise the present size of the table is said."""
    table = planned.table
    text = f"pgtrickle/writer#{table.pgt_id}:{phase}:{min(rows, MOST)}:{min(width, MOST)}:"
    writer.execute(
        "SELECT pg_catalog.set_config('application_name', %s || CASE WHEN %s THEN %s ELSE "
        "pgtrickle._stored_size(pg_catalog.to_regclass(%s)) END, true)",
        (text, phase == COPY, copied, qualified(table.schema, table.name)),
    )


def counted(
    writer: Connection, planned: PlannedRefresh, batches: Generator[pa.Table, None, None], rows: int
) -> Generator[pa.Table, None, None]:
    """The batches; between two of them the writer, which copies each by a statement of its own, says how many rows the
    earlier ones had."""
    copied = 0
    for batch in batches:
        name(writer, planned, COPY, rows, 0, copied)
        copied += len(batch)
        yield batch
