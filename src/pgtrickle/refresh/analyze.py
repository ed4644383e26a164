"""Computes a refresh of one stream table in each way, without applying it: rows and time of each operator.

A way is a mode and an engine. All ways read at one snapshot, in a read-only transaction. Nothing is written to the
database: PostgreSQL executes the statement that reads the delta or the content, Spark evaluates the compiled query over
existing replicas.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.db import catalog
from pgtrickle.db.connect import begin, translated
from pgtrickle.db.session import applied
from pgtrickle.errors import PgtrickleError
from pgtrickle.model.flow import Pending, Window
from pgtrickle.model.operators import Operator
from pgtrickle.model.reasons import Reason
from pgtrickle.model.session import apart
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.refresh.cost_model import DIFFERENTIAL, FULL, POSTGRES, SPARK
from pgtrickle.refresh.decide import reload_reason, since
from pgtrickle.refresh.explained import operator
from pgtrickle.refresh.observed import window_queries
from pgtrickle.refresh.pending import FEW_ROWS, expect_few, read_pending
from pgtrickle.refresh.spark_delta import named_states
from pgtrickle.refresh.spark_load import missing_replica, opened, spark_failures
from pgtrickle.refresh.spark_query import SparkQuery, all_at, spark_query

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.model.catalog import StreamTable
    from pgtrickle.pipeline.engine.spark import SparkEngine
    from pgtrickle.replica import ReplicaStore

AUTHOR = "the query runs with its author's privileges, in a session of its own"


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of one way. `parts`: milliseconds. `why_not`: why a refresh cannot be computed in this way now."""

    mode: str
    engine: str
    rows: int | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    plan: Operator | None = None
    why_not: str | None = None

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {"mode": self.mode, "engine": self.engine}
        if self.plan is None:
            return {**document, "why_not": self.why_not}
        parts = {name: round(ms, 3) for name, ms in self.parts.items()}
        return {**document, "rows": self.rows, "parts_ms": parts, "plan": self.plan.to_json()}


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The input of a refresh at this moment."""

    reader: Connection
    table: StreamTable
    compiled: Compiled
    moment: catalog.ReadPoint
    reload: str | None  # why a differential refresh is impossible
    window: Window | None
    pending: Mapping[int, Pending]

    @property
    def settings(self) -> dict[str, tuple[str, str]]:
        return apart(self.compiled.settings, self.moment.session)

    @property
    def names(self) -> dict[int, str]:
        relations = catalog.relations(self.reader, [s.relid for s in self.table.sources])
        return {r.relid: f"{r.schema}.{r.name}" for r in relations}


def analyze(
    reader: Connection, engine: SparkEngine, store: ReplicaStore, table: StreamTable, compiled: Compiled
) -> list[Analysis]:
    """For each way its measurements, or why it is impossible."""
    with translated(), _read_only(reader):
        seen = _seen(reader, table, compiled)
        return [
            _attempt(seen, FULL, POSTGRES, lambda: _whole_by_postgres(seen)),
            _attempt(seen, FULL, SPARK, lambda: _whole_by_spark(seen, engine, store)),
            _attempt(seen, DIFFERENTIAL, SPARK, lambda: _changes_by_spark(seen, engine, store)),
            # Last, because it changes planner settings for the rest of the transaction.
            _attempt(seen, DIFFERENTIAL, POSTGRES, lambda: _changes_by_postgres(seen)),
        ]


@contextmanager
def _read_only(reader: Connection) -> Iterator[None]:
    begin(reader, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        if not reader.closed:
            reader.rollback()


def _seen(reader: Connection, table: StreamTable, compiled: Compiled) -> _Snapshot:
    moment = catalog.read_moment(reader)
    reload = reload_reason(table, moment.instance, moment.cut, moment.time_zone)
    cut = since(table, moment.instance, moment.cut)
    window = Window(cut, moment.cut) if cut is not None and reload is None else None
    pending: Mapping[int, Pending] = {}
    if window is not None:
        prints = fingerprints(reader, sorted({s.relid for s in table.watched}))
        windows = window_queries(table, window, prints, compiled)
        counts, _ = read_pending(reader, list(windows.values()))
        pending = {relid: counts[each] for relid, each in windows.items()}
    return _Snapshot(reader, table, compiled, moment, str(reload) if reload is not None else None, window, pending)


class _CannotError(PgtrickleError):
    """A refresh cannot be computed in this way now."""


def _attempt(seen: _Snapshot, mode: str, engine: str, compute: Callable[[], Analysis]) -> Analysis:
    """In a savepoint, because the other ways use the same transaction."""
    try:
        with translated(), seen.reader.transaction():
            _require_own_query(seen)
            return compute()
    except PgtrickleError as error:
        why = error.message if isinstance(error, _CannotError) else error.one_line()
        return Analysis(mode, engine, why_not=why)


def _require_own_query(seen: _Snapshot) -> None:
    if seen.table.mirror is not None:
        raise _CannotError("a mirror is read from its origin")
    if seen.table.remotes:
        raise _CannotError("tables of other databases are read from their replicas, at snapshots of their origins")
    if seen.table.runs_as_author:
        raise _CannotError(AUTHOR)
    if seen.compiled.cycle:
        raise _CannotError("the stream tables of a cycle are computed in rounds")


# -- PostgreSQL
# -------------------------------------------------------------------------------------------------------------


def _whole_by_postgres(seen: _Snapshot) -> Analysis:
    load = seen.compiled.stages.load
    return _explained(seen, FULL, load.query.sql if load.query is not None else load.statement)


def _changes_by_postgres(seen: _Snapshot) -> Analysis:
    changed = _changed(seen)
    stages = seen.compiled.stages.changes
    assert stages is not None
    if sum(each.rows for each in changed.values()) <= FEW_ROWS:
        expect_few(seen.reader)
    return _explained(seen, DIFFERENTIAL, stages.read.delta_statement(changed))


def _changed(seen: _Snapshot) -> dict[int, ChangedSource]:
    """The windows of the sources with relevant changes."""
    stages = seen.compiled.stages.changes
    if stages is None:
        raise _CannotError(
            f"the query is not maintained from changes: {seen.compiled.reason or seen.table.mode_reason}"
        )
    if seen.window is None:
        raise _CannotError(f"it has to be loaded again: {seen.reload}")
    if any(p.truncated for p in seen.pending.values()):
        raise _CannotError("a source was truncated, or rows of it were moved to another partition by MERGE")
    relids = stages.read.template.relids
    changed = {r: ChangedSource(r, seen.window, p.rows) for r, p in seen.pending.items() if p.rows and r in relids}
    if not changed:
        raise _CannotError("no change is pending")
    return changed


def _explained(seen: _Snapshot, mode: str, sql: str) -> Analysis:
    with applied(seen.reader, seen.settings):
        row = seen.reader.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}").fetchone()
    assert row is not None
    (document,) = row[0]
    plan = operator(document["Plan"], seen.names)
    parts = {"plan": document["Planning Time"], "execute": document["Execution Time"]}
    return Analysis(mode, POSTGRES, plan.rows, parts, plan)


# -- Spark
# ------------------------------------------------------------------------------------------------------------------


def _whole_by_spark(seen: _Snapshot, engine: SparkEngine, store: ReplicaStore) -> Analysis:
    from pgtrickle.pipeline.engine import evaluate
    from pgtrickle.pipeline.engine.executed import executed

    query = _on_spark(seen, store)
    parts: dict[str, float] = {}
    with _timed(parts, "open"):
        versions = {place: opened(seen.reader, store, each) for place, each in query.inputs.items()}
    with spark_failures(), engine.bulk_session() as spark, ExitStack() as stack:
        with _timed(parts, "window"):
            frames = {
                place: evaluate.named(
                    stack.enter_context(store.at_cut(spark, seen.reader, versions[place], each.names)), each.names
                )
                for place, each in query.inputs.items()
            }
        with _timed(parts, "evaluate"):
            done = executed(query.query.build(spark, lambda schema, name: frames[schema, name]))
    return Analysis(FULL, SPARK, done.rows, parts, done.plan)


def _changes_by_spark(seen: _Snapshot, engine: SparkEngine, store: ReplicaStore) -> Analysis:
    from pgtrickle.pipeline.engine.executed import executed

    relids = _changed(seen)
    query = _on_spark(seen, store)
    if isinstance(query.changes, Reason):
        raise _CannotError(str(query.changes))
    changed = frozenset(place for place, each in query.inputs.items() if each.need.relid in relids)
    changes = query.changes.of(changed)
    if changes is None or seen.window is None:
        raise _CannotError("the changes do not affect the result")
    parts: dict[str, float] = {}
    with _timed(parts, "open"):
        versions = {place: opened(seen.reader, store, each) for place, each in query.inputs.items()}
    with spark_failures(), engine.bulk_session() as spark, ExitStack() as stack:
        with _timed(parts, "window"):
            states = {}
            for place, each in query.inputs.items():
                cut = seen.window.since if place in changed else None
                between = store.between(spark, seen.reader, versions[place], cut, each.names)
                states[place] = named_states(stack.enter_context(between), each)
        with _timed(parts, "evaluate"):
            done = executed(changes.build(spark, lambda schema, name, state: states[schema, name][state]))
    return Analysis(DIFFERENTIAL, SPARK, done.rows, parts, done.plan)


def _on_spark(seen: _Snapshot, store: ReplicaStore) -> SparkQuery:
    query = spark_query(seen.reader, seen.table, seen.compiled)
    if isinstance(query, Reason):
        raise _CannotError(str(query))
    missing = missing_replica(all_at(seen.reader), store, query)
    if missing is not None:
        raise _CannotError(str(missing))
    return query


@contextmanager
def _timed(parts: dict[str, float], name: str) -> Iterator[None]:
    begun = time.perf_counter()
    try:
        yield
    finally:
        parts[name] = (time.perf_counter() - begun) * 1000
