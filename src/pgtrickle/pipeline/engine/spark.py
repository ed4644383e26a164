"""The Spark part of a wave: one job for its deltas, whatever their queries. The worker nets small deltas itself
(`consolidate`).

All delta rows have the layout of `frames`; tables differ only in the number of columns that they use; unused columns
are empty. Only the public DataFrame API of Spark Connect is used. Inputs are single partitions, so nothing is shuffled.
There are two sessions: the small one without code generation, which costs more than it saves for tiny plans; the bulk
one with it (200,000 rows netted in 0.7 s instead of 1.9), which returns Arrow instead of rows.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import EngineLostError, InvariantError, PgtrickleError
from pgtrickle.model.flow import Delta, ExtremeDelta, SumDelta
from pgtrickle.pipeline import expressions
from pgtrickle.pipeline.delta_layout import DeltaLayout
from pgtrickle.pipeline.engine.batcher import Batcher
from pgtrickle.pipeline.engine.call_watch import CallWatch
from pgtrickle.pipeline.engine.frames import DeltaRows, combine
from pgtrickle.pipeline.engine.package import ship
from pgtrickle.pipeline.executor_errors import reported
from pgtrickle.pipeline.relational.session import session_conf

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from pgtrickle.db.handover import Handover

_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    **expressions.CONF,
}
# Optimizer rules that never apply to our plans, and are tried at least twice on each. None of them changes expressions,
# so that errors occur exactly as in the conformance tests.
_NEEDLESS = (
    "CollapseWindow",
    "ColumnPruning",
    "ConvertToLocalRelation",
    "EliminateSorts",
    "InferFiltersFromConstraints",
    "InferFiltersFromGenerate",
    "LimitPushDown",
    "NestedColumnAliasing",
    "PropagateEmptyRelation",
    "PruneFilters",
    "PushPredicateThroughNonJoin",
    "TransposeWindow",
)
SMALL_CONF = {
    **_CONF,
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.leafNodeDefaultParallelism": "1",  # one partition instead of two
    "spark.sql.optimizer.excludedRules": ",".join(f"org.apache.spark.sql.catalyst.optimizer.{r}" for r in _NEEDLESS),
    "spark.connect.session.planCache.enabled": "false",  # no plan is repeated: it contains its rows
}
BULK_CONF = {
    **_CONF,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # The server would cache the last 16 plans with their rows: five loads of 2 M rows filled a heap of 2 GB.
    "spark.connect.session.planCache.enabled": "false",
}
THREADS = 4
SIDE_BY_SIDE = 2  # concurrent jobs: one is planned and sent while the other one runs
BATCH_ROWS = 20_000  # a larger input is a job of its own: padding and waiting would cost the others more
_OVERFLOW = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_OVERFLOW")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One table of a wave: its layout and its delta rows."""

    slots: DeltaLayout
    delta_rows: pa.Table | DeltaRows


class SparkEngine:
    """Warm sessions. Thread-safe; after the server was replaced the next call connects again."""

    def __init__(self, remote: Callable[[], str]) -> None:
        _import_client()
        self._remote = remote
        self._lock = threading.Lock()
        self._sessions: dict[bool, SparkSession] = {}  # key: whether it is the bulk session
        self._warm: dict[bool, SparkSession] = {}  # those in which a job has completed
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="spark")
        self._gather = Batcher(self._run, SIDE_BY_SIDE, EngineLostError)
        self.announced = self._gather.announce  # a caller will call run() inside this block
        self.withdraw = self._gather.withdraw  # a caller that announced itself will not call run()
        # Around run(): the caller's worker slot is free for others meanwhile. The dispatcher sets it.
        self.slot_lent: Callable[[], AbstractContextManager[None]] = nullcontext
        self.jobs = 0
        # How many cold jobs have begun, and have ended: those of a session that was not warm. Who waited for a job
        # while this number changed has waited for the start of Spark, too: by its own job, or one of the same batch.
        self.cold_jobs = 0
        self.calls = CallWatch(self._cut_off)

    def run(self, items: Sequence[WorkItem]) -> Sequence[Delta]:
        """Runs a wave, together with those of other threads that arrived while the previous job was running."""
        return self._gather(items)

    def _run(self, items: Sequence[WorkItem]) -> list[Delta]:
        """Runs all small items as one job and each large one as its own, concurrently."""
        batches: list[list[int]] = [[p] for p, item in enumerate(items) if len(item.delta_rows) > BATCH_ROWS]
        batches.append([p for p, item in enumerate(items) if 0 < len(item.delta_rows) <= BATCH_ROWS])
        results = [_delta(item.slots, []) for item in items]

        def job(positions: list[int]) -> None:
            for position, delta in zip(positions, self._job([items[p] for p in positions]), strict=True):
                results[position] = delta

        batches = [b for b in batches if b]
        if len(batches) == 1:
            job(batches[0])
        else:
            for future in [self._threads.submit(job, b) for b in batches]:
                future.result()
        return results

    def parallelism(self) -> int:
        """The number of tasks that Spark runs concurrently; queried each time, because a cluster may have grown."""
        from pgtrickle.pipeline.engine import bulk

        with self._errors():
            return bulk.parallelism(self._connected(bulk=True))

    def stage_by_executors(
        self,
        source: Handover,
        target: Handover,
        statements: Sequence[str],
        columns: Sequence[tuple[str, str]],
        stage: str,
    ) -> None:
        """Executors run the statements at `source` and write their rows to a staging table at `target`.

        `columns`: (name, int8 or text) of what the statements return.
        """
        from pyspark.errors import PySparkException

        from pgtrickle.pipeline.engine import bulk

        with self._errors():
            self.jobs += 1
            try:
                load = bulk.BulkLoad(source, target, statements, columns, stage)
                with self._session(bulk=True) as session:
                    bulk.run(session, load)
            except PySparkException as error:
                if (ours := reported(str(error))) is not None:
                    raise ours from error
                raise

    def is_warm(self, *, bulk: bool) -> bool:
        """Whether a job has completed in the session. The first one waits until Spark answers, and generates much
        code."""
        session = self._sessions.get(bulk)
        return session is not None and self._warm.get(bulk) is session

    @contextmanager
    def bulk_session(self) -> Iterator[SparkSession]:
        """The bulk session; failures, also in executors, are raised as our errors."""
        from pyspark.errors import PySparkException

        with self._errors():
            self.jobs += 1
            try:
                with self._session(bulk=True) as session:
                    yield session
            except PySparkException as error:
                if (ours := reported(str(error))) is not None:
                    raise ours from error
                raise

    def trivial(self) -> None:
        """The smallest job with Arrow as input and rows as output: the baseline of the latency benchmark."""
        import pyarrow as pa

        with self._errors(), self._session(bulk=False) as session:
            _frame(session, pa.table({"w": pa.array([1], pa.int64())})).select("w").collect()

    def warm_up(self, jobs: int) -> Iterator[int]:
        """The first hundred jobs of a JVM are slow; yields after each so that a caller can show progress."""
        slots = DeltaLayout(2, 1)
        delta_rows = [(1, "{a}", "1.50", None, "1", "1"), (-1, "{b}", "2", "3", "2", "2")]
        kinds = [
            WorkItem(slots, DeltaRows(slots, delta_rows)),
            WorkItem(DeltaLayout(), DeltaRows(DeltaLayout(), [row[:2] for row in delta_rows])),
        ]
        for number in range(jobs):
            self._gather([kinds[number % 2]])
            yield number + 1

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        with self._lock:
            sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            _stop(session)

    def _job(self, items: Sequence[WorkItem]) -> list[Delta]:
        slots = DeltaLayout(
            max(i.slots.sums for i in items),
            max(i.slots.extremes for i in items),
            any(i.slots.every for i in items),
        )
        delta_rows, overflow = combine([item.delta_rows for item in items], slots)
        is_bulk = len(items) == 1 and len(delta_rows) > BATCH_ROWS
        with (
            self._errors(),
            nullcontext() if is_bulk else self.calls.watched(),
            self._session(bulk=is_bulk) as session,
        ):
            self.jobs += 1
            net = _net(_frame(session, delta_rows), slots)
            if is_bulk:
                table = net.toArrow()
                return [overflow.back(0, _typed(slots, [table.column(n).to_pylist() for n in result_names(slots)]))]
            # Rows, because toArrow requests the schema from the server first.
            collected = net.collect()
        split: list[list[Sequence[Any]]] = [[] for _ in items]
        for row in map(tuple, collected):  # plain tuples, because access to a Row is slow
            split[row[0]].append(row)
        return [overflow.back(number, _delta(slots, rows)) for number, rows in enumerate(split)]

    @contextmanager
    def _session(self, *, bulk: bool) -> Iterator[SparkSession]:
        """For one job."""
        is_cold = not self.is_warm(bulk=bulk)
        self.cold_jobs += is_cold
        try:
            session = self._connected(bulk=bulk)
            yield session
            self._warm[bulk] = session
        finally:
            self.cold_jobs += is_cold

    def _connected(self, *, bulk: bool) -> SparkSession:
        with self._lock:
            if bulk not in self._sessions:
                from pyspark.sql import SparkSession
                from pyspark.sql.connect.client.retries import DefaultPolicy

                session = SparkSession.builder.remote(self._remote()).create()
                # The client would retry a dead server for ten minutes; we retry whole waves.
                policy = DefaultPolicy(max_retries=4, backoff_multiplier=3, max_backoff=1000)
                session.client.set_retry_policies([policy])
                self._sessions[bulk] = session  # stored before its first call, so that a failure discards it
                if not bulk:
                    # Otherwise each of the six parts of a response is acknowledged by its own call (8 ms of CPU).
                    # After a restarted response the client would compute wrong offsets.
                    session.client.disable_reattachable_execute()
                for name, value in (BULK_CONF if bulk else SMALL_CONF).items():
                    session.conf.set(name, value)
                if bulk:
                    ship(session)
                    for name, value in session_conf(_cores(session)).items():
                        session.conf.set(name, value)
            return self._sessions[bulk]

    def _discard(self) -> None:
        """The next call connects again. An open client would call the dead server when the process ends."""
        with self._lock:
            sessions, self._sessions, self._warm = self._sessions, {}, {}
        for session in sessions.values():
            _close(session)

    def _cut_off(self) -> None:
        """Without the lock: a thread may hold it while its first call is stuck. That thread discards the sessions."""
        for session in list(self._sessions.values()):
            _close(session)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """An error that is neither a refused plan nor an overflow means that the server is lost: the next call connects
        again."""
        from grpc import RpcError
        from pyspark.errors import AnalysisException, PySparkException, PySparkTypeError, PySparkValueError

        try:
            yield
        except PgtrickleError:
            raise
        except (PySparkException, RpcError, OSError, ValueError) as error:
            text = str(error)
            if type(error) is ValueError and "Cannot invoke RPC" not in text:  # else: another thread has discarded it
                raise
            if any(code in text for code in _OVERFLOW):
                raise InvariantError("a sum does not fit 38 digits") from error
            if isinstance(error, AnalysisException | PySparkTypeError | PySparkValueError):
                raise InvariantError(f"Spark refused the plan: {_first_line(error)}") from error
            self._discard()
            raise EngineLostError(f"Spark did not finish the job: {_first_line(error)}") from error


def _frame(session: SparkSession, table: pa.Table) -> DataFrame:
    return session.createDataFrame(table).coalesce(1)


def _cores(session: SparkSession) -> int:
    from pgtrickle.pipeline.engine import bulk

    return bulk.parallelism(session)


def _stop(session: SparkSession) -> None:
    try:
        session.stop()
    except Exception:  # noqa: BLE001 - the server may be gone; there is nothing left to release
        return


def _close(session: SparkSession) -> None:
    try:
        session.client.close()
    except Exception:  # noqa: BLE001 - the server may be gone; there is nothing left to release
        return


def _import_client() -> None:
    """Imports Spark's client once, because a concurrent import by two threads may see a partly initialized module."""
    from importlib import import_module

    # gRPC's fork handlers run in every child that is started as another user, and may end it before it has begun.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    for name in ("grpc", "pandas", "pyarrow", "pyspark.errors", "pyspark.sql.connect.session"):
        import_module(name)
    for name in ("pyspark.sql.functions", "pyspark.sql.connect.functions", "pyspark.sql.connect.client.retries"):
        import_module(name)


def _first_line(error: BaseException) -> str:
    """The first line that is not empty."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:300]


def result_names(slots: DeltaLayout) -> list[str]:
    """Columns of a result after the table number.

    n: net weight; k: key; per sum the number of values and the total; per extreme the texts of the extreme inserted and
    the extreme deleted value.
    """
    sums = [f"s{i}_{what}" for i in range(slots.sums) for what in ("n", "s")]
    return ["n", "k", *sums, *(f"x{i}_{what}" for i in range(slots.extremes) for what in ("i", "d"))]


def _delta(slots: DeltaLayout, rows: Sequence[Sequence[Any]]) -> Delta:
    """Rows of a result, table number first."""
    if not rows:
        return _typed(slots, [[] for _ in result_names(slots)])
    return _typed(slots, list(map(list, zip(*rows, strict=True)))[1:])


def _typed(slots: DeltaLayout, columns: Sequence[list[Any]]) -> Delta:
    """Columns in the order of `result_names`, by their meaning."""
    weights, keys, *rest = columns
    pairs = list(zip(rest[::2], rest[1::2], strict=True))
    sums = tuple(SumDelta(rows, totals) for rows, totals in pairs[: slots.sums])
    return Delta(weights, keys, sums, tuple(ExtremeDelta(*pair) for pair in pairs[slots.sums :]))


def _net(frame: DataFrame, slots: DeltaLayout) -> DataFrame:
    folded, shown, is_kept = _net_columns(slots)
    net = frame.groupBy("t", "k").agg(*folded)
    if slots == DeltaLayout():
        net = net.where(is_kept)
    return net.select(*shown)


@cache
def _net_columns(slots: DeltaLayout) -> tuple[Sequence[Column], Sequence[Column], Column]:
    """The aggregates, the output columns and the filter. Created once: the client takes some 0.2 ms per function call,
    because it records the call site."""
    from pyspark.sql import functions as f

    w = f.col("w")
    folded = [f.sum(w).alias("n")]
    for i in range(slots.sums):
        value = f.col(f"s{i}")
        folded.append(f.sum(f.when(value.isNotNull(), w).otherwise(f.lit(0))).alias(f"s{i}_n"))
        folded.append(f.sum(f.when(w > 0, value).otherwise(-value)).alias(f"s{i}_s"))
    for i in range(slots.extremes):
        pair = f.struct(f"o{i}", f"x{i}")
        for what, side in (("i", w > 0), ("d", w < 0)):
            seen = f.when(side & f.col(f"o{i}").isNotNull(), pair)
            folded.append(f.min(seen).getField(f"x{i}").alias(f"x{i}_{what}"))
    shown = [f.col("t"), *map(f.col, result_names(slots))]
    return folded, shown, f.col("n") != 0
