"""Nets a window: removes changes that cancel out, so that deleted and inserted rows remain.

The driver nets a window that fits into memory: Arrow takes 0.2 s for 200,000 changes, a Spark job 1 s. Arrow compares
floats bit by bit, so -0.0 and 0.0 are different, as they must be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.pipeline.engine.columnar import Frame, Session, Shape
    from pgtrickle.replica.storage import Storage
    from pgtrickle.replica.window import WindowRead

SENT_BYTES = 4 << 20  # a larger window is a file that Spark reads, instead of a part of the plan
SORTABLE = ("smallint", "int", "bigint", "string")  # types whose values Python orders like the bounds of files


@dataclass(frozen=True, slots=True)
class NettedWindow:
    """Images with their net weight: in memory, or in one or several files."""

    storage: Storage
    shape: Shape
    table: pa.Table | None
    path: str | None

    def frame(self, spark: Session) -> Frame:
        from pgtrickle.pipeline.engine import columnar

        if self.path is not None:
            return columnar.weighted(spark, [self.path], self.shape, self.storage.scan)
        assert self.table is not None
        if not len(self.table):  # Spark infers no schema from an Arrow table without rows
            return spark.createDataFrame([], columnar.weighted_ddl(self.shape))
        return spark.createDataFrame(self.table)

    def totals(self) -> tuple[int, int]:
        """The numbers of deleted and of inserted rows."""
        from pyarrow import compute

        weights = self._columns([_weight()]).column(0)
        deleted = compute.sum(weights.filter(compute.less(weights, 0))).as_py() or 0
        inserted = compute.sum(weights.filter(compute.greater(weights, 0))).as_py() or 0
        return -deleted, inserted

    def deleted_keys(self) -> list[Any] | None:
        """The first key column of the deleted rows, ascending and without duplicates; None: not sortable."""
        from pyarrow import compute

        leading = self.shape.identity[0]
        if not self.shape.key or leading.ddl not in SORTABLE:
            return None
        table = self._columns([_weight(), leading.name])
        keys = table.column(1).filter(compute.less(table.column(0), 0))
        return sorted(set(keys.to_pylist()))

    def _columns(self, names: Sequence[str]) -> pa.Table:
        if self.table is not None:
            return self.table.select(names)
        assert self.path is not None
        return self.storage.read_table(self.path, names)


def net(spark: Session, storage: Storage, read: WindowRead, shape: Shape, staged: str) -> NettedWindow:
    """`staged`: a directory for large windows; created if needed."""
    from pgtrickle.pipeline.engine import columnar

    if read.table is None:
        netted = columnar.net(read.frame(spark, storage, shape), shape)
        return NettedWindow(storage, shape, None, storage.write_one(netted, shape, staged, "net"))
    table = net_rows(read.table, shape.names)
    if table.nbytes <= SENT_BYTES:
        return NettedWindow(storage, shape, table, None)
    path = f"{staged}/net.parquet"
    storage.write_table(table, path, "snappy")
    return NettedWindow(storage, shape, None, path)


def net_rows(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The netted rows of a window, weight first."""
    from pyarrow import compute

    weight = _weight()
    summed = table.group_by(list(names)).aggregate([(weight, "sum")])
    summed = summed.filter(compute.not_equal(summed.column(f"{weight}_sum"), 0))
    return summed.select([f"{weight}_sum", *names]).rename_columns([weight, *names])


def _weight() -> str:
    from pgtrickle.pipeline.engine.columnar import WEIGHT

    return WEIGHT
