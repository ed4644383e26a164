"""The changes of a source between two cuts, read with one statement, as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import translated
from pgtrickle.model.flow import Window
from pgtrickle.replica.values import DamagedError

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.columnar import Frame, Session, Shape
    from pgtrickle.replica.columns import Layout
    from pgtrickle.replica.storage import Storage

BATCH_BYTES = 8 << 20
IN_MEMORY_BYTES = 64 << 20  # a larger window becomes a file
WINDOW = "window.parquet"  # Spark skips files whose own names begin with an underscore
TRUNCATED = "the table was truncated"


@dataclass(frozen=True, slots=True)
class WindowRead:
    """A window: its rows in memory or in a file. `others`: files with further rows."""

    rows: int
    table: pa.Table | None
    path: str | None
    others: tuple[str, ...] = ()

    def frame(self, spark: Session, storage: Storage, shape: Shape) -> Frame:
        """The DataFrame of a window in a file: these columns and the weights."""
        from pgtrickle.pipeline.engine import columnar

        assert self.path is not None
        return columnar.weighted(spark, [self.path, *self.others], shape, storage.scan)


@contextmanager
def rendered_alike(conn: Connection) -> Iterator[None]:
    """Fixes settings that affect the texts of values. `conn` is in a transaction."""
    with translated():
        row = conn.execute("SELECT pg_catalog.current_setting('TimeZone')").fetchone()
        assert row is not None
        conn.execute("SELECT pg_catalog.set_config('TimeZone', 'UTC', true)")
    yield
    with translated():  # an error ends the transaction, which resets them
        conn.execute("SELECT pg_catalog.set_config('TimeZone', %s, true)", [row[0]])


def read_window(conn: Connection, layout: Layout, window: Window, storage: Storage, spill: str) -> WindowRead:
    """Reads the window in the transaction of `conn`, whose snapshot sees all of it. `spill`: a file for a large one.

    Raises DamagedError if the table was truncated in it, UnfitValueError for a value that the column's type cannot
    represent.
    """
    import pyarrow as pa
    from pyarrow import compute

    from pgtrickle.pipeline.engine.columnar import WEIGHT, arrow_type, rows_of

    columns = [(WEIGHT, "bigint"), *((c.name, c.ddl) for c in layout.columns)]
    schema = pa.schema([(name, arrow_type(ddl)) for name, ddl in columns])
    held: list[pa.Table] = []
    rows = size = 0
    writer: Any = None
    try:
        with rendered_alike(conn), translated():
            for batch in rows_of(conn, layout.from_buffer(window), columns, batch_bytes=BATCH_BYTES):
                if compute.any(compute.equal(batch.column(0), 0)).as_py():
                    raise DamagedError(TRUNCATED)
                rows += len(batch)
                size += batch.nbytes
                held.append(batch)
                if size > IN_MEMORY_BYTES and writer is None:
                    writer = storage.writer(spill, schema)
                if writer is not None:
                    for each in held:
                        writer.write_table(each)
                    held.clear()
    finally:
        if writer is not None:
            writer.close()
    if writer is not None:
        return WindowRead(rows, None, spill)
    return WindowRead(rows, pa.concat_tables([schema.empty_table(), *held]), None)
