"""Differential refreshes on Spark: executors evaluate the delta of the query over replicas, PostgreSQL applies it.

The source server reads change windows by transaction range: those since the replicas' cuts, and those since the stream
table's frontier. It evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from pgtrickle.apply import bags, groups, topk
from pgtrickle.apply.groups import GroupDelta
from pgtrickle.apply.stage import analysed, claim_stage, drop_stage, stage_binary
from pgtrickle.db.connect import MOST_PLANNED_AHEAD
from pgtrickle.db.handover import hand_over
from pgtrickle.errors import SparkUnsupportedError, TooFewKeptError
from pgtrickle.model.flow import Cut
from pgtrickle.model.reasons import Reason
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.refresh.spark_changes import GroupChanges, RowChanges
from pgtrickle.refresh.spark_load import opened_inputs, spark_failures
from pgtrickle.refresh.spark_query import Place, SparkInput, SparkQuery
from pgtrickle.refresh.stages import Content, EngineDelta, PlannedRefresh, Unchanged, timed

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.pipeline.engine.columnar import Frame
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica import ReplicaStore
    from pgtrickle.replica.states import TableStates

# Changed rows up to which the driver collects the delta and writes it; executors would need a session each.
SENT_ROWS = 100_000


def delta_on_spark(
    reader: Connection,
    writer: Connection,
    engine: SparkEngine,
    store: ReplicaStore,
    planned: PlannedRefresh,
    place: Place,
    since: Callable[[SparkInput], Cut],
) -> Content:
    """The delta between the frontier and the snapshots of the sessions that `place` gives; `since`: the frontier's cut
    of the database of an input.

    Raises ReplicaUnavailableError if a replica cannot be used, InexactValueError if Spark cannot represent a value,
    and SparkUnsupportedError if it cannot evaluate the delta.
    """
    from pgtrickle.pipeline.engine import evaluate

    query = planned.compiled.on_spark.known()
    assert isinstance(query, SparkQuery)
    if isinstance(query.changes, Reason):
        raise SparkUnsupportedError(str(query.changes))
    changed = frozenset(name for name, each in query.inputs.items() if _has_changed(planned, each))
    changes = query.changes.of(changed)
    if changes is None:
        return Unchanged()
    planned.timings.is_cold |= not engine.is_warm(bulk=True)
    with timed(planned, "open"):
        inputs = opened_inputs(store, query, place)
    starts = {name: since(query.inputs[name]) for name in changed}
    with spark_failures(), engine.bulk_session() as spark, ExitStack() as stack:
        with timed(planned, "window"):
            states = {
                name: named_states(
                    stack.enter_context(
                        store.between(spark, each.conn, each.version, starts.get(name), each.source.names)
                    ),
                    each.source,
                )
                for name, each in inputs.items()
            }
        with timed(planned, "evaluate"):
            frame = changes.build(spark, lambda schema, name, state: states[schema, name][state])
            frame = frame.toDF(*(name for name, _ in changes.staged))
            if planned.changes <= SENT_ROWS and (rows := evaluate.collected(frame)) is not None:
                planned.sizes.netted = len(rows)
                return EngineDelta(changes, rows)
            return EngineDelta(changes, None, _write_stage(reader, writer, planned, changes, frame))


def _has_changed(planned: PlannedRefresh, source: SparkInput) -> bool:
    pending = planned.pending.get(source.need.relid)
    return pending is not None and pending.rows > 0


def named_states(stored: TableStates, source: SparkInput) -> dict[str, Frame]:
    from pgtrickle.pipeline.engine import evaluate

    states = {"new": evaluate.named(stored.new, source.names), "old": evaluate.named(stored.old, source.names)}
    if stored.changes is not None:
        states["changes"] = evaluate.weighted(stored.changes, source.names)
    else:  # the relevant changes cancel out
        states["changes"] = evaluate.unchanged(stored.new, source.names)
    return states


def _write_stage(
    reader: Connection, writer: Connection, planned: PlannedRefresh, changes: RowChanges | GroupChanges, frame: Frame
) -> str:
    """Executors write the delta to a staging table; returns its name."""
    from pgtrickle.pipeline.engine import bulk

    stage = claim_stage(reader, planned.table.pgt_id)
    bulk.write(frame, hand_over(writer, snapshot=False), changes.staged, stage)
    return stage


def apply_engine_delta(writer: Connection, planned: PlannedRefresh, delta: EngineDelta) -> tuple[int, int]:
    """Rows inserted and deleted."""
    if delta.table is not None and not len(delta.table):
        return 0, 0
    is_small = not delta.has_more_rows_than(MOST_PLANNED_AHEAD)
    if delta.table is not None:
        stage = stage_binary(writer, delta.changes.staged, delta.table, pgt_id=planned.table.pgt_id)
    else:
        assert delta.stage is not None
        stage = analysed(writer, delta.stage)
    rows = _apply_stage(writer, planned, delta.changes, stage, is_small=is_small)
    drop_stage(writer, stage)
    return rows


def _apply_stage(
    writer: Connection, planned: PlannedRefresh, changes: RowChanges | GroupChanges, stage: str, *, is_small: bool
) -> tuple[int, int]:
    compiled, relation = planned.compiled, changes.relation(stage)
    if isinstance(changes, GroupChanges):
        assert compiled.groups is not None
        return groups.fold_relation(writer, compiled.groups, relation, is_added=changes.is_signed)
    if isinstance(changes.template, TopKTemplate):
        return _apply_topk(writer, planned, changes.template, relation)
    return bags.apply_relation(writer, compiled.target, relation, is_small=is_small)


def _apply_topk(writer: Connection, planned: PlannedRefresh, template: TopKTemplate, relation: str) -> tuple[int, int]:
    """Applies the delta rows up to the boundary row, which PostgreSQL selects."""
    limited = planned.compiled.topk
    assert limited is not None
    rows = writer.execute(template.delta_of(relation)).fetchall()
    if topk.runs_out(writer, limited, sum(weight for weight, _ in rows)):
        raise TooFewKeptError("too few spare rows are left for the LIMIT")
    if not rows:
        return 0, 0
    weights, keys = zip(*rows, strict=True)
    apply = topk.apply_arrays if len(rows) <= MOST_PLANNED_AHEAD else topk.apply_staged
    return apply(writer, limited, GroupDelta(weights, keys))
