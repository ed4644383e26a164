"""Advances a replica to a later cut, in one commit: by a layer of changes beside the files (layers.py), or by rewriting
the files that have deleted rows and appending new ones."""

from __future__ import annotations

import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pgtrickle.replica import layers, log, rows
from pgtrickle.replica.build import ROWS_PER_FILE, shape_of
from pgtrickle.replica.netting import NettedWindow, net
from pgtrickle.replica.values import DamagedError, ReplicaFile, ReplicaVersion
from pgtrickle.replica.window import WINDOW, WindowRead, read_window

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.model.flow import Window
    from pgtrickle.pipeline.engine.columnar import Session
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica.columns import Layout
    from pgtrickle.replica.storage import Storage

SMALL_FILE_ROWS = ROWS_PER_FILE // 4
ONE_TASK_ROWS = 4 * ROWS_PER_FILE  # more rows are sorted in parallel, for which Spark reads them twice
MOST_SMALL_FILES = 8  # then they are merged


def advance(
    conn: Connection,
    writer: Connection,
    engine: SparkEngine,
    storage: Storage,
    version: ReplicaVersion,
    chosen: Layout,
    window: Window,
    token: str,
    fingerprint: str,
) -> ReplicaVersion:
    """`conn` is in the transaction whose snapshot is the end of the window; the token was announced.

    Raises DamagedError if the replica is not the table at the beginning of the window.
    """
    staged = storage.staging(version.directory)
    storage.create_staging(staged)
    new: list[str] = []
    try:
        read = read_window(conn, chosen, window, storage, f"{staged}/{WINDOW}")
        step = _step(
            engine,
            storage,
            replace(version, version=version.version + 1, token=token, cut=window.upto, fingerprint=fingerprint),
            read,
            staged,
        )
        new = step.new
        latest = step.latest if step.latest.layers else replace(step.latest, base_cut=window.upto)
        log.commit(storage, latest, step.added, step.removed)
        new = []
        storage.close_off(version.directory)
    finally:
        storage.give_up(version.directory, new)
        storage.discard(staged)
    if not rows.record(writer, latest):
        raise DamagedError("its changes were compacted while it advanced")
    return latest


@dataclass(frozen=True, slots=True)
class _Step:
    """The commit: the version, and the files of the table that it adds and removes."""

    latest: ReplicaVersion
    added: list[ReplicaFile] = field(default_factory=list)
    removed: list[ReplicaFile] = field(default_factory=list)
    new: list[str] = field(default_factory=list)  # files that were written for it


def _step(engine: SparkEngine, storage: Storage, version: ReplicaVersion, read: WindowRead, staged: str) -> _Step:
    """`version`: the next one, with the content of the one before."""
    if not read.rows:
        return _Step(version)
    shape = shape_of(version)
    changes = layers.fitting(version, read, shape)
    if changes is None:
        return _folded(engine, storage, version, layers.with_layers(storage, version, read), staged)
    written = layers.write(storage, changes, shape, staged, version.directory)
    return _Step(replace(version, layers=(*version.layers, *written)), new=[each.name for each in written])


def _folded(engine: SparkEngine, storage: Storage, version: ReplicaVersion, read: WindowRead, staged: str) -> _Step:
    """Rewrites files with all changes since their rows."""
    with engine.bulk_session() as spark:
        netted = net(spark, storage, read, shape_of(version), staged)
        deleted, inserted = netted.totals()
        removed = _rewritten(spark, storage, version, netted, deleted)
        total = sum(f.rows for f in removed) + inserted
        added = _written(spark, storage, version, netted, removed, f"{staged}/rows", total)
    new = [f.name for f in added]
    if sum(f.rows for f in added) != total - deleted:
        storage.delete(version.directory, new)
        raise DamagedError("it lacks rows that were deleted since")
    storage.retire(version.layer_paths)
    removed_names = {f.name for f in removed}
    remaining = [f for f in version.files if f.name not in removed_names]
    return _Step(replace(version, files=(*remaining, *added), layers=()), added, removed, new)


def _rewritten(
    spark: Session, storage: Storage, version: ReplicaVersion, netted: NettedWindow, deleted: int
) -> list[ReplicaFile]:
    """Files with deleted rows; and small ones, when there are many. Bounds exclude most, Spark finds the rest."""
    from pgtrickle.pipeline.engine import columnar

    small = [f for f in version.files if f.rows < SMALL_FILE_ROWS]
    merged = {f.name for f in small} if len(small) > MOST_SMALL_FILES else set()
    if deleted:
        keys = netted.deleted_keys()
        candidates = [f for f in version.files if may_contain(f, keys)]
        if not candidates:
            return []  # the number of rows shows that the replica is damaged
        if keys is None or not all(must_contain(candidates, keys)):
            paths = [f"{version.directory}/{f.name}" for f in candidates]
            merged |= columnar.files_with(spark, paths, netted.frame(spark), netted.shape, storage.scan)
        else:
            merged |= {f.name for f in candidates}
    return [f for f in version.files if f.name in merged]


def may_contain(file: ReplicaFile, keys: Sequence[Any] | None) -> bool:
    """Whether one of the keys, in ascending order, is within the bounds of the file."""
    if keys is None or file.low is None or file.high is None:
        return True
    position = bisect_left(keys, file.low)
    return bool(position < len(keys) and keys[position] <= file.high)


def must_contain(files_: Sequence[ReplicaFile], keys: Sequence[Any]) -> list[bool]:
    """For each file, whether one of the keys (ascending, each in some file) is within the bounds of this file only."""
    ranges = [
        (0, len(keys)) if f.low is None or f.high is None else (bisect_left(keys, f.low), bisect_right(keys, f.high))
        for f in files_
    ]
    steps = [0] * (len(keys) + 1)
    for first, end in ranges:
        steps[first] += 1
        steps[end] -= 1
    alone = [0, *accumulate(int(number == 1) for number in accumulate(steps[:-1]))]  # how many before each position
    return [alone[end] > alone[first] for first, end in ranges]


def _written(
    spark: Session,
    storage: Storage,
    version: ReplicaVersion,
    netted: NettedWindow,
    removed: Sequence[ReplicaFile],
    staged: str,
    total: int,
) -> list[ReplicaFile]:
    """The rows of the removed files, without those that were deleted, and the inserted ones."""
    from pgtrickle.pipeline.engine import columnar

    if not total:
        return []
    shape = netted.shape
    base = columnar.stored(spark, [f"{version.directory}/{f.name}" for f in removed], shape, storage.scan)
    content = columnar.changed(base, netted.frame(spark), shape)
    parts = -(-total // ROWS_PER_FILE) if total > ONE_TASK_ROWS else 1
    leading = next((c for c in version.columns if c.name in version.key), None)
    return storage.write_sorted(
        content, shape, version.directory, staged, leading, parts=parts, rows_per_file=ROWS_PER_FILE
    )


def new_token() -> str:
    return secrets.token_hex(16)
