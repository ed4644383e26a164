"""Deltas: what changes make of stream tables, read at the snapshot, netted by Spark, applied."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pgtrickle.apply import bags, topk
from pgtrickle.apply import groups as grouped
from pgtrickle.apply.stage import stage_arrow, stage_columns
from pgtrickle.db.copy import read_batches
from pgtrickle.db.roundtrip import Query, Steps, ask_together, run_queries
from pgtrickle.db.session import applied
from pgtrickle.define import author_query as author
from pgtrickle.errors import InvariantError, PgtrickleError
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.engine import frames
from pgtrickle.pipeline.engine.spark import SparkEngine, WorkItem
from pgtrickle.pipeline.render.statement_cache import delta_text
from pgtrickle.pipeline.templates.template import FoldTemplate
from pgtrickle.refresh.decide import DIFFERENTIAL
from pgtrickle.refresh.delta_budget import DeltaBudget
from pgtrickle.refresh.job import TableRefresh, by_settings, timed
from pgtrickle.refresh.loads import read_refill
from pgtrickle.refresh.recompute import delta_arrays

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

# Rows that a few changes may bring (all of them twice, where a subquery that every row asks has another answer) before
# AUTO computes the table anew instead. They are held in memory.
MAX_DELTA_ROWS = 500_000
SMALL_ROWS = 5_000  # above: leaves are read, and deltas staged, by COPY; below, rows and array parameters are quicker
MIRROR_ROWS = 20_000  # changes that the apply statement of a mirror nets itself, from array parameters


def read_deltas(reader: Connection, jobs: Sequence[TableRefresh], cut: Cut, most_bytes: int) -> None:
    """The signed rows that changes bring, the small ones in one round trip. Raises when there is no room for them:
    then all is computed anew."""
    asked: list[tuple[TableRefresh, Query]] = []
    for job in jobs:
        if job.decision.action != DIFFERENTIAL or job.since is None:
            continue
        window, template = Window(job.since, cut), job.template
        # Of a source that the query names and does not use, as an unused WITH item does, nothing is wanted.
        changed = {
            r: ChangedSource(r, window, p.rows) for r, p in job.pending.items() if p.rows and r in template.relids
        }
        job.leaf = frames.DeltaRows(template.slots, [])
        if not changed:
            continue
        room = DeltaBudget(MAX_DELTA_ROWS, most_bytes) if job.table.refresh_mode == "AUTO" else None
        if job.place is not None:
            _read_as_author(reader, job, changed, room)
            continue
        if sum(c.rows for c in changed.values()) > SMALL_ROWS:
            with applied(reader, job.settings):
                _copy(reader, job, template.delta_statement(changed), room)
            continue
        text, values = delta_text(template, job.compiled.texts, changed)
        # Some at a time: a result is otherwise in memory before the first of its rows can be counted.
        look = None if room is None else room.take_rows
        asked.append((job, Query(text, values or (), values is not None, job.compiled.texts.mark(), look)))
    asks = {id(job): ask for job, ask in asked}
    for settings, together in by_settings(job for job, _ in asked):
        with applied(reader, settings):
            answers = run_queries(reader, [asks[id(job)] for job in together], apart=_are_timed(together))
        for job, answer in zip(together, answers, strict=True):
            job.leaf = frames.DeltaRows(job.template.slots, answer.rows)
            job.timings.add("read", answer.ms)


def _copy(reader: Connection, job: TableRefresh, text: str, room: DeltaBudget | None) -> None:
    _gather(job, read_batches(reader, text, frames.text_types(job.template.slots)), room)


def _gather(job: TableRefresh, found: Generator[pa.Table], room: DeltaBudget | None) -> None:
    with timed(job, "read"), closing(found) as batches:
        tables = []
        for batch in batches:
            if room is not None:
                room.take(len(batch), batch.nbytes)
            tables.append(batch)
        job.leaf = frames.from_batches(tables, job.template.slots)


def _read_as_author(
    reader: Connection, job: TableRefresh, changed: Mapping[int, ChangedSource], room: DeltaBudget | None
) -> None:
    place, slots = job.place, job.template.slots
    if place is None or slots != ROWS:
        raise InvariantError("a table with a state was to be read as its author")
    copied, copies = author.window_copies(reader, job.table, changed)
    text = job.template.delta_statement(copied)
    if sum(c.rows for c in changed.values()) > SMALL_ROWS:
        _gather(job, author.read_many(place, job.table, text, copies, frames.text_types(slots)), room)
        return
    with timed(job, "read"):
        look = None if room is None else room.take_rows
        job.leaf = frames.DeltaRows(slots, author.read_rows(place, job.table, text, copies, look))


def net(engine: SparkEngine, jobs: Sequence[TableRefresh]) -> None:
    """One execution for the wave."""
    jobs = [job for job in jobs if job.leaf is not None and job.error is None]
    if not jobs:
        return
    begun = time.perf_counter()
    items = [WorkItem(j.template.slots, j.leaf) for j in jobs]
    try:
        for job, delta in zip(jobs, engine.run(items), strict=True):
            job.delta = delta
    except PgtrickleError as error:
        for job in jobs:
            job.error = error
    for job in jobs:
        job.timings.add("spark", (time.perf_counter() - begun) * 1000)


def arrange(reader: Connection, engine: SparkEngine, jobs: Sequence[TableRefresh]) -> None:
    """What is to be applied, from what was netted; groups that cannot be had by adding are read again."""
    folds: list[tuple[TableRefresh, Steps[list[Sequence[Any]]]]] = []
    for job in jobs:
        assert job.delta is not None
        kept, groups, template = job.compiled.kept, job.compiled.groups, job.template
        if kept is not None and topk.runs_out(reader, kept, sum(job.delta.columns["n"])):
            with timed(job, "refill"), applied(reader, job.settings):
                job.refill = read_refill(reader, engine, job)
        elif isinstance(template, FoldTemplate):
            assert groups is not None
            folds.append((job, delta_arrays(template, groups, job.compiled.texts, job.delta)))
        else:
            job.arrays = [job.delta.columns[name] for name, _ in bags.delta_columns(job.compiled.target)]
    steps = {id(job): each for job, each in folds}
    for settings, together in by_settings(job for job, _ in folds):
        with applied(reader, settings):
            found = ask_together(reader, [steps[id(job)] for job in together], apart=_are_timed(together))
        for job, (arrays, ms) in zip(together, found, strict=True):
            job.arrays = arrays
            job.timings.add("reread", ms)


def apply_deltas(writer: Connection, jobs: Sequence[TableRefresh]) -> dict[int, tuple[int, int]]:
    """Rows inserted and deleted, by table. Small deltas go together."""
    found: dict[int, tuple[int, int]] = {}
    small: list[tuple[TableRefresh, Steps[tuple[int, int]]]] = []
    for job in jobs:
        groups, arrays = job.compiled.groups, job.arrays
        most = MIRROR_ROWS if job.compiled.target.is_mirror else SMALL_ROWS
        if job.compiled.kept is None and arrays and 0 < len(arrays[0]) <= most:
            if groups is not None:
                small.append((job, grouped.fold_arrays(groups, arrays, _anew(job))))
            else:
                small.append((job, bags.apply_arrays(job.compiled.target, arrays)))
            continue
        with timed(job, "apply"), applied(writer, job.settings):
            found[job.table.pgt_id] = _apply(writer, job)
    all_steps = {id(job): steps for job, steps in small}
    for settings, together in by_settings(job for job, _ in small):
        with applied(writer, settings):
            results = ask_together(writer, [all_steps[id(job)] for job in together], apart=_are_timed(together))
        for job, (rows, ms) in zip(together, results, strict=True):
            found[job.table.pgt_id] = rows
            job.timings.add("apply", ms)
    return found


def _apply(writer: Connection, job: TableRefresh) -> tuple[int, int]:
    """A large delta; or one of the rows that a LIMIT keeps."""
    target, groups, kept, arrays = job.compiled.target, job.compiled.groups, job.compiled.kept, job.arrays
    if job.refill is not None and kept is not None:
        return topk.replace_kept(writer, kept, stage_arrow(writer, kept.groups.load_columns(), job.refill))
    if not arrays or not arrays[0]:
        return 0, 0
    if kept is not None:
        if len(arrays[0]) <= SMALL_ROWS:
            return topk.keep_arrays(writer, kept, arrays)
        return topk.keep_staged(writer, kept, stage_columns(writer, kept.groups.delta_columns(), arrays))
    if groups is not None:
        stage = stage_columns(writer, groups.delta_columns(), arrays)
        return grouped.fold_staged(writer, groups, stage, _anew(job))
    return bags.apply_staged(writer, target, stage_columns(writer, bags.delta_columns(target), arrays))


def _anew(job: TableRefresh) -> list[tuple[int, str]]:
    """Identities and keys of the groups of which the arrays have all of the state, and not a change of it."""
    if job.delta is None or job.arrays is None or not job.delta.lost:
        return []
    return [(h, k) for h, k in zip(job.arrays[0], job.arrays[2], strict=True) if k in job.delta.lost]


def _are_timed(jobs: Iterable[TableRefresh]) -> bool:
    """Whether it matters what each of them takes: AUTO goes by that."""
    return any(job.table.refresh_mode == "AUTO" for job in jobs)
