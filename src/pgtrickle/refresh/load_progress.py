"""Shows how far a load is to whoever asks: `pgtrickle.load_progress()` reads it from the server's own statistics.

The writing session says in its application_name, until its transaction ends, which stream table it loads and what to
expect. That costs no commit, is visible to other sessions at once, and ends with the session, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pgtrickle.db.connect import TRANSACTION, pooler_of
from pgtrickle.model.identifiers import qualified

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.model.catalog import StreamTable
    from pgtrickle.refresh.stages import PlannedRefresh

# Phases, as status/loads.sql reads them.
COMPUTE: Final = "c"  # the server computes the content into a staging table
COPY: Final = "r"  # rows from another session are copied into a staging table
WRITE: Final = "w"  # rows are written to the stream table
SPARK: Final = "s"  # Spark computes or reads the content, its executors write to the tables of a stage

SLOW_MS = 1000.0  # a full refresh that took less is not announced: the estimate takes some milliseconds
MOST = 10**12  # so that all numbers fit into a name


def is_announced(planned: PlannedRefresh) -> bool:
    table = planned.table
    return not table.is_populated or (table.last_full_ms or 0.0) >= SLOW_MS


def announce(writer: Connection, planned: PlannedRefresh, phase: str, query: str) -> None:
    """Within a transaction of the writer, which evaluates the query."""
    if is_announced(planned):
        rows, width = expected(writer, query)
        name(writer, planned.table, phase, rows, width, _present_size(writer, planned.table))


def expected(conn: Connection, query: str) -> tuple[int, int]:
    """Rows and their width, as the planner estimates them."""
    row = conn.execute(f"EXPLAIN (FORMAT JSON) {query}").fetchone()
    assert row is not None
    top = row[0][0]["Plan"]
    return int(top["Plan Rows"]), int(top["Plan Width"])


def _present_size(writer: Connection, table: StreamTable) -> int:
    """Bytes of the stream table, by which it grows while it is written."""
    row = writer.execute(
        "SELECT pgtrickle._stored_size(pg_catalog.to_regclass(%s))", (qualified(table.schema, table.name),)
    ).fetchone()
    return (row and row[0]) or 0


def name(writer: Connection, table: StreamTable, phase: str, rows: int, width: int, number: int) -> None:
    """`number`: the size of the table at the begin; of rows that are copied, those of earlier statements; of a stage of
    executors, the number in its name. Until the end of the transaction, or of the session if there is none."""
    text = f"pgtrickle/writer#{table.pgt_id}:{phase}:{min(rows, MOST)}:{min(width, MOST)}:{number}"
    is_local = writer.info.transaction_status.name == "INTRANS"
    writer.execute("SELECT pg_catalog.set_config('application_name', %s, %s)", (text, is_local))


@contextmanager
def on_executors(
    writer: Connection, table: StreamTable, stage: str, rows_and_width: Callable[[], tuple[int, int]] | None
) -> Iterator[None]:
    """While executors fill the tables of a stage, each in a session of its own. `rows_and_width`: None if the load is
    not announced. Behind a transaction pooler nobody's session can be named without a transaction."""
    is_inside = writer.info.transaction_status.name == "INTRANS"
    if rows_and_width is None or (pooler_of(writer) == TRANSACTION and not is_inside):
        yield
        return
    name(writer, table, SPARK, *rows_and_width(), int(stage.rpartition("_")[2], 16))
    try:
        yield
    finally:
        if not is_inside and not writer.closed:
            writer.execute("RESET application_name")


def counted(
    writer: Connection, planned: PlannedRefresh, batches: Generator[pa.Table, None, None], rows: int
) -> Generator[pa.Table, None, None]:
    """The batches; between two of them the writer, which copies each by a statement of its own, says how many rows the
    earlier ones had."""
    copied = 0
    for batch in batches:
        name(writer, planned.table, COPY, rows, 0, copied)
        copied += len(batch)
        yield batch
