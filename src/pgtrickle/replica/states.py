"""The old and the new state of a table, and its changes, from a replica and windows of the change buffer.

The replica stands at cut B, the reader's frontier at F, the refresh at cut C. Windows are Z-sets, so no order of B and
F is needed:

    new = replica + window(B, C]        changes = window(F, C]        old = replica + window(B, C] - window(F, C]

If the replica is before the frontier, the difference of the windows is the changes in between; if it is after the
frontier, the difference reverts the changes since the frontier.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.replica.netting import NettedWindow, net_rows
from pgtrickle.replica.window import WindowRead

if TYPE_CHECKING:
    from pgtrickle.pipeline.engine.columnar import Frame, Session, Shape
    from pgtrickle.replica.storage import Storage

SENT_BYTES = 256 << 10  # a larger window is a file, because a plan contains it several times


@dataclass(frozen=True, slots=True)
class TableStates:
    """DataFrames with the columns of the replica. `changes`: the used columns and the weight; None: no changes."""

    new: Frame
    old: Frame
    changes: Frame | None = None


def states(
    spark: Session,
    storage: Storage,
    base: Frame,
    shape: Shape,
    since_replica: WindowRead,
    since_frontier: WindowRead | None,
    used: Collection[str],
    staged: str,
) -> TableStates:
    """`staged`: a directory for large windows. `since_frontier` None: the table has no changes. `used`: columns with
    relevant changes."""
    from pgtrickle.pipeline.engine import columnar
    from pgtrickle.pipeline.engine.columnar import Shape

    def changed(read: WindowRead, name: str) -> Frame:
        found = _net(spark, storage, read, shape, staged, name)
        return base if found is None else columnar.changed(base, found, shape)

    seen = Shape(tuple(c for c in shape.columns if c.name in used), ())

    new = changed(since_replica, "new")
    if since_frontier is None:
        return TableStates(new, new)
    changes = _net(spark, storage, since_frontier, seen, staged, "changes")
    if changes is None:
        return TableStates(new, new)
    later = _minus(spark, storage, since_replica, since_frontier, shape, staged)
    return TableStates(new, changed(later, "old"), changes)


def _net(spark: Session, storage: Storage, read: WindowRead, shape: Shape, staged: str, name: str) -> Frame | None:
    """None: all changes cancel out."""
    from pgtrickle.pipeline.engine import columnar

    if read.table is None:
        netted = columnar.net(read.frame(spark, storage, shape), shape)
        target = storage.write_one(netted, shape, staged, f"{name}_net")
        return NettedWindow(storage, shape, None, target).frame(spark)
    table = net_rows(read.table, shape.names)
    if not len(table):
        return None
    if table.nbytes <= SENT_BYTES:
        return NettedWindow(storage, shape, table, None).frame(spark)
    path = f"{staged}/{name}.parquet"
    storage.write_table(table, path, "snappy")
    return NettedWindow(storage, shape, None, path).frame(spark)


def _minus(
    spark: Session, storage: Storage, left: WindowRead, right: WindowRead, shape: Shape, staged: str
) -> WindowRead:
    """The first window minus the second one."""
    import pyarrow as pa
    from pyarrow import compute

    from pgtrickle.pipeline.engine import columnar

    if left.table is not None and right.table is not None:
        weights = compute.negate(right.table.column(0))
        negated = right.table.set_column(0, left.table.schema.field(0), weights)
        return WindowRead(left.rows + right.rows, pa.concat_tables([left.table, negated]), None)
    sides = []
    for name, read in (("left", left), ("right", right)):
        path = read.path
        if read.table is not None:
            path = f"{staged}/{name}.parquet"
            storage.write_table(read.table, path, "snappy")
        sides.append(WindowRead(read.rows, None, path, read.others).frame(spark, storage, shape))
    target = storage.write_one(columnar.minus(*sides), shape, staged, "minus")
    return WindowRead(left.rows + right.rows, None, target)
