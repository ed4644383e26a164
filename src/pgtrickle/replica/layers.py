"""Layers: changes of a replica that are stored beside its data files.

If the changes are spread over all keys, rewriting the files takes time in proportion to the table. A layer takes time
in proportion to the changes: they are netted in memory and written to one file, which the commit names. Other engines
read only the data files, which are exactly the table at an earlier cut. When the layers have become large, the next
advance rewrites the files with the changes of all layers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle.replica.netting import NettedWindow, net_rows
from pgtrickle.replica.values import ReplicaLayer, ReplicaVersion
from pgtrickle.replica.window import IN_MEMORY_BYTES, WindowRead

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.pipeline.engine.columnar import Shape
    from pgtrickle.replica.storage import Storage

LEAST_ROWS = 100_000  # of the files: smaller tables are rewritten in a second
MOST_SHARE = 0.1  # images of all layers / rows of the files: every read of the table joins both
MOST_LAYERS = 16


def fitting(version: ReplicaVersion, read: WindowRead, shape: Shape) -> pa.Table | None:
    """The netted rows of a window for a layer; None: the files have to be rewritten."""
    if read.table is None or version.base_rows < LEAST_ROWS or len(version.layers) >= MOST_LAYERS:
        return None
    table = net_rows(read.table, shape.names)
    images = sum(each.images for each in version.layers) + len(table)
    memory = sum(each.memory for each in version.layers) + table.nbytes
    return table if images <= MOST_SHARE * version.base_rows and memory <= IN_MEMORY_BYTES else None


def write(storage: Storage, table: pa.Table, shape: Shape, staged: str, directory: str) -> tuple[ReplicaLayer, ...]:
    """Writes a layer of netted rows; none if there are no rows. `staged`: an existing directory."""
    if not len(table):
        return ()
    deleted, inserted = NettedWindow(storage, shape, table, None).totals()
    name, size = storage.add_layer(table, staged, directory)
    return (ReplicaLayer(name, size, len(table), deleted, inserted, table.nbytes),)


def with_layers(storage: Storage, version: ReplicaVersion, read: WindowRead) -> WindowRead:
    """All changes since the data files: the layers, and a window that begins at the replica's cut."""
    import pyarrow as pa

    rows = read.rows + sum(each.images for each in version.layers)
    if read.table is None:
        return WindowRead(rows, None, read.path, (*read.others, *version.layer_paths))
    tables = [storage.read_table(path).cast(read.table.schema) for path in version.layer_paths]
    return WindowRead(rows, pa.concat_tables([read.table, *tables]), None)
