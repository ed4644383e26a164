"""Deltas of stream tables: read at the snapshot, netted, applied."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from pgtrickle.apply import bags, topk
from pgtrickle.apply import groups as grouped
from pgtrickle.apply.bags import BagDelta
from pgtrickle.apply.groups import GroupDelta
from pgtrickle.apply.stage import stage_arrow
from pgtrickle.db.copy import read_batches
from pgtrickle.db.roundtrip import Query, Steps, ask_together, run_queries
from pgtrickle.db.session import applied
from pgtrickle.define import author_query as author
from pgtrickle.errors import InvariantError, PgtrickleError
from pgtrickle.model.flow import Cut
from pgtrickle.pipeline.delta_layout import ROWS
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.engine import frames
from pgtrickle.pipeline.engine.netting import SignedRows, net_deltas
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.pipeline.render.statement_cache import delta_text
from pgtrickle.pipeline.templates.template import FoldTemplate
from pgtrickle.refresh.delta_budget import DeltaBudget
from pgtrickle.refresh.loads import read_refill
from pgtrickle.refresh.recompute import group_delta
from pgtrickle.refresh.spark_delta import apply_engine_delta
from pgtrickle.refresh.stages import (
    ComputedRefresh,
    Content,
    EngineDelta,
    FailedRefresh,
    NettedRefresh,
    PlannedRefresh,
    ReadRefresh,
    Refill,
    Unchanged,
    WholeContent,
    by_settings,
    require_stored,
    timed,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection
    from pgtrickle.db.handover import Handover

# Rows of a delta above which AUTO falls back to FULL. A few changes may affect all rows twice, if the result of an
# uncorrelated subquery changes. The rows are held in memory.
MAX_DELTA_ROWS = 500_000
SMALL_ROWS = 5_000  # above: deltas are read and staged by COPY; below, rows and array parameters are faster
MIRROR_ROWS = 20_000  # changes of a mirror that the apply statement nets itself, from array parameters


@dataclass(frozen=True, slots=True)
class _ChangeRead:
    """The read of one table's delta."""

    planned: PlannedRefresh
    changed: Mapping[int, ChangedSource]
    budget: DeltaBudget | None  # for AUTO: what may be held in memory before it falls back to FULL

    @property
    def is_large(self) -> bool:
        return sum(c.rows for c in self.changed.values()) > SMALL_ROWS


def read_deltas(
    reader: Connection, refreshes: Sequence[PlannedRefresh], cut: Cut, most_bytes: int
) -> list[ReadRefresh]:
    """Reads the signed rows of the deltas, small ones in one round trip. Fails a refresh whose delta exceeds the
    budget; then AUTO falls back to FULL."""
    for planned in refreshes:
        require_stored(planned)
    results: dict[int, ReadRefresh] = {}
    small: list[tuple[PlannedRefresh, Query]] = []
    for planned in refreshes:
        read = _change_read(planned, cut, most_bytes)
        if not read.changed:
            results[planned.table.pgt_id] = ReadRefresh(planned, frames.DeltaRows(planned.stages.net.layout, []))
        elif planned.place is not None:
            results[planned.table.pgt_id] = _read_as_author(reader, planned.place, read)
        elif read.is_large:
            with applied(reader, planned.settings):
                text = planned.stages.read.delta_statement(read.changed)
                results[planned.table.pgt_id] = _copied(reader, read, text)
        else:
            small.append((planned, _query(read)))
    for settings, group in by_settings(small):
        queries = [query for _, query in group]
        with applied(reader, settings):
            answered = run_queries(reader, queries, apart=True)
        for (planned, _), answer in zip(group, answered, strict=True):
            rows = frames.DeltaRows(planned.stages.net.layout, answer.rows)
            results[planned.table.pgt_id] = ReadRefresh(planned, rows)
            planned.timings.add("read", answer.ms)
    return [results[planned.table.pgt_id] for planned in refreshes]


def _change_read(planned: PlannedRefresh, cut: Cut, most_bytes: int) -> _ChangeRead:
    window, relids = planned.window(cut), planned.stages.read.template.relids
    # Nothing is read for a source that the query names and does not use, as in an unused CTE.
    changed = {r: ChangedSource(r, window, p.rows) for r, p in planned.pending.items() if p.rows and r in relids}
    is_auto = planned.table.refresh_mode == "AUTO"
    return _ChangeRead(planned, changed, DeltaBudget(MAX_DELTA_ROWS, most_bytes) if is_auto else None)


def _query(read: _ChangeRead) -> Query:
    texts = read.planned.compiled.texts
    text, values = delta_text(read.planned.stages.read, texts, read.changed)
    # In chunks: otherwise a result is in memory before its rows can be counted.
    on_rows = None if read.budget is None else read.budget.take_rows
    return Query(text, values or (), values is not None, texts.mark(), on_rows)


def _copied(reader: Connection, read: _ChangeRead, text: str) -> ReadRefresh:
    return _gathered(read, read_batches(reader, text, frames.text_types(read.planned.stages.net.layout)))


def _gathered(read: _ChangeRead, stream: Generator[pa.Table]) -> ReadRefresh:
    with timed(read.planned, "read"), closing(stream) as batches:
        tables = []
        for batch in batches:
            if read.budget is not None:
                read.budget.take(len(batch), batch.nbytes)
            tables.append(batch)
        return ReadRefresh(read.planned, frames.from_batches(tables, read.planned.stages.net.layout))


def _read_as_author(reader: Connection, place: Handover, read: _ChangeRead) -> ReadRefresh:
    table, stages = read.planned.table, read.planned.stages
    if stages.net.layout != ROWS:
        raise InvariantError("a table with a state was to be read as its author")
    copied, copies = author.window_copies(reader, table, read.changed)
    text = stages.read.delta_statement(copied)
    if read.is_large:
        return _gathered(read, author.read_many(place, table, text, copies, frames.text_types(ROWS)))
    with timed(read.planned, "read"):
        on_rows = None if read.budget is None else read.budget.take_rows
        rows = author.read_rows(place, table, text, copies, on_rows)
        return ReadRefresh(read.planned, frames.DeltaRows(ROWS, rows))


def net(engine: SparkEngine, refreshes: Sequence[ReadRefresh]) -> list[NettedRefresh | FailedRefresh]:
    """The net deltas. A Spark job that fails fails every refresh whose rows it had."""
    inputs = [SignedRows(r.planned.table.full_name, r.planned.stages.net.layout, r.rows) for r in refreshes]
    netted: list[NettedRefresh | FailedRefresh] = []
    for read, result in zip(refreshes, net_deltas(engine, inputs), strict=True):
        planned = read.planned
        planned.sizes.read = len(read.rows)
        planned.timings.add(result.part, result.ms, result.tables)
        planned.timings.is_cold |= result.is_cold
        if isinstance(result.delta, PgtrickleError):
            netted.append(FailedRefresh(planned, result.delta))
        else:
            planned.sizes.netted = len(result.delta)
            netted.append(NettedRefresh(planned, result.delta))
    return netted


def arrange(reader: Connection, refreshes: Sequence[NettedRefresh]) -> list[ComputedRefresh]:
    """Turns netted deltas into the content to apply; groups that cannot be folded are recomputed."""
    results: dict[int, ComputedRefresh] = {}
    folds: list[tuple[PlannedRefresh, Steps[GroupDelta]]] = []
    for netted in refreshes:
        planned, compiled, template = netted.planned, netted.planned.compiled, netted.planned.template
        if isinstance(template, FoldTemplate):
            assert compiled.groups is not None
            folds.append((planned, group_delta(template, compiled.groups, compiled.texts, netted.delta)))
        else:
            results[planned.table.pgt_id] = ComputedRefresh(planned, _row_content(reader, netted))
    for settings, group in by_settings(folds):
        steps = [each for _, each in group]
        with applied(reader, settings):
            answers = ask_together(reader, steps, apart=True)
        for (planned, _), (delta, ms) in zip(group, answers, strict=True):
            results[planned.table.pgt_id] = ComputedRefresh(planned, delta)
            planned.timings.add("reread", ms)
    return [results[netted.planned.table.pgt_id] for netted in refreshes]


def _row_content(reader: Connection, netted: NettedRefresh) -> Content:
    """The content of a table without groups: a bag, or the stored rows of a top-k query."""
    planned, delta, limited = netted.planned, netted.delta, netted.planned.compiled.topk
    if limited is None:
        return BagDelta(delta.weights, delta.keys)
    if topk.runs_out(reader, limited, sum(delta.weights)):
        with timed(planned, "refill"), applied(reader, planned.settings):
            return Refill(read_refill(reader, planned))
    return GroupDelta(delta.weights, delta.keys)


def apply_deltas(writer: Connection, refreshes: Sequence[ComputedRefresh]) -> dict[int, tuple[int, int]]:
    """Rows inserted and deleted, by table. Small deltas are applied in one round trip."""
    written: dict[int, tuple[int, int]] = {}
    small: list[tuple[PlannedRefresh, Steps[tuple[int, int]]]] = []
    for computed in refreshes:
        planned, steps = computed.planned, _small_steps(computed)
        if steps is not None:
            small.append((planned, steps))
            continue
        with timed(planned, "apply"), applied(writer, planned.settings):
            written[planned.table.pgt_id] = _apply(writer, computed)
    for settings, group in by_settings(small):
        all_steps = [steps for _, steps in group]
        with applied(writer, settings):
            results = ask_together(writer, all_steps, apart=True)
        for (planned, _), (rows, ms) in zip(group, results, strict=True):
            written[planned.table.pgt_id] = rows
            planned.timings.add("apply", ms)
    return written


def _small_steps(computed: ComputedRefresh) -> Steps[tuple[int, int]] | None:
    """The statements of a small delta; None: it is applied by itself."""
    compiled = computed.planned.compiled
    match computed.content:
        case BagDelta() as delta if 0 < len(delta) <= (MIRROR_ROWS if compiled.target.is_mirror else SMALL_ROWS):
            return bags.apply_arrays(compiled.target, delta)
        case GroupDelta() as delta if compiled.topk is None and 0 < len(delta) <= SMALL_ROWS:
            return grouped.fold_arrays(_groups(computed), delta)
        case _:
            return None


def _apply(writer: Connection, computed: ComputedRefresh) -> tuple[int, int]:
    """Applies a large delta, or one of a top-k query."""
    content, target, limited = computed.content, computed.planned.compiled.target, computed.planned.compiled.topk
    match content:
        case Unchanged():
            return 0, 0
        case WholeContent():
            raise InvariantError(f"{target.schema}.{target.name} is to be loaded, which its changes cannot do")
        case Refill(batches):
            assert limited is not None
            stage = stage_arrow(writer, (("k", "text"), ("n", "int8")), batches)
            return topk.replace_rows(writer, limited, limited.groups.decoded_rows(stage))
        case EngineDelta():
            return apply_engine_delta(writer, computed.planned, content)
        case BagDelta() | GroupDelta() if not len(content):
            return 0, 0
        case BagDelta():
            return bags.apply_staged(writer, target, content)
        case GroupDelta() if limited is None:
            return grouped.fold_staged(writer, _groups(computed), content)
        case GroupDelta():
            apply = topk.apply_arrays if len(content) <= SMALL_ROWS else topk.apply_staged
            return apply(writer, limited, content)
        case _:
            assert_never(content)


def _groups(computed: ComputedRefresh) -> grouped.Groups:
    if computed.planned.compiled.groups is None:
        raise InvariantError("a delta of groups is for a table without groups")
    return computed.planned.compiled.groups
