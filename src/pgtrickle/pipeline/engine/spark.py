"""The Spark part of a wave: one job for all small plans, whatever their queries.

Every leaf has the layout of `frames`; plans differ only in how many slots they use, and unused slots are empty. Public
DataFrame API over Spark Connect only. Leaves are single partitions, so nothing is shuffled. There are two sessions: the
small one has code generation off, which for tiny plans costs more than it saves; the bulk one has it on (200,000 rows
netted in 0.7 s instead of 1.9) and returns Arrow instead of rows.
"""

from __future__ import annotations

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
from pgtrickle.pipeline.engine.frames import DeltaRows, combine
from pgtrickle.pipeline.executor_errors import reported

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from pgtrickle.db.handover import Handover

_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    **expressions.CONF,
}
# Rules of the optimizer that find nothing in a plan of ours, and are tried at least twice on each. None that changes
# expressions: what fails, and what does not because a constant decides it, is as it was proven.
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
    "spark.sql.leafNodeDefaultParallelism": "1",  # of two partitions one is all that is wanted
    "spark.sql.optimizer.excludedRules": ",".join(f"org.apache.spark.sql.catalyst.optimizer.{r}" for r in _NEEDLESS),
    "spark.connect.session.planCache.enabled": "false",  # no plan comes twice: its rows are part of it
}
BULK_CONF = {
    **_CONF,
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # The server would keep the last 16 plans with their rows: five loads of 2 M rows filled a heap of 2 GB.
    "spark.connect.session.planCache.enabled": "false",
}
THREADS = 4
SIDE_BY_SIDE = 2  # waves of several threads: one plans and sends while the other's job runs
BATCH_ROWS = 20_000  # a larger leaf runs as a job of its own: padding and waiting for it would cost the others more
_OVERFLOW = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_OVERFLOW")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One plan of a wave: its slots and its leaf."""

    slots: DeltaLayout
    leaf: pa.Table | DeltaRows


class SparkEngine:
    """Warm sessions. Threads may share it; after the server was replaced the next call connects again."""

    def __init__(self, remote: Callable[[], str]) -> None:
        _import_client()
        self._remote = remote
        self._lock = threading.Lock()
        self._sessions: dict[bool, SparkSession] = {}  # by whether it is the bulk one
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="spark")
        self._gather = Batcher(self._run, SIDE_BY_SIDE, EngineLostError)
        self.coming = self._gather.announce  # around what a caller does before its wave
        self.aside: Callable[[], AbstractContextManager[None]] = nullcontext  # where a caller waits for its wave
        self.jobs = 0

    def run(self, items: Sequence[WorkItem]) -> Sequence[Delta]:
        """Runs a wave, together with those of other threads that came while the one before was running."""
        with self.aside():
            return self._gather(items)

    def _run(self, items: Sequence[WorkItem]) -> list[Delta]:
        """All small items as one job, each large one as its own, side by side."""
        batches: list[list[int]] = [[p] for p, item in enumerate(items) if len(item.leaf) > BATCH_ROWS]
        batches.append([p for p, item in enumerate(items) if 0 < len(item.leaf) <= BATCH_ROWS])
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

    def identify(self, rows: pa.Table) -> pa.Table:
        """Adds the identity `h` of the first column: the Spark part of a load."""
        import pyarrow as pa
        from pyspark.sql import functions as f

        if not len(rows):
            return rows.append_column("h", pa.array([], pa.int64()))
        with self._errors():
            self.jobs += 1
            frame = self._frame(rows, bulk=len(rows) > BATCH_ROWS)
            return frame.select("*", _identity(f.col("c0")).alias("h")).toArrow()

    def parallelism(self) -> int:
        """Tasks that Spark runs at once, asked anew each time: a cluster may have grown."""
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
        """Executors run the statements at `source`, identify the rows and make the staging table of them at `target`.

        `columns`: (name, int8 or text) of what the statements return, the identity last, which they do not return.
        """
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        from pgtrickle.pipeline.engine import bulk

        with self._errors():
            self.jobs += 1
            try:
                load = bulk.BulkLoad(source, target, statements, columns, stage)
                bulk.run(self._connected(bulk=True), load, _identity(f.col("c0")))
            except PySparkException as error:
                if (ours := reported(str(error))) is not None:
                    raise ours from error
                raise

    def trivial(self) -> None:
        """The smallest job that takes Arrow in and gives rows back: the yardstick of the latency benchmark."""
        import pyarrow as pa

        with self._errors():
            self._frame(pa.table({"w": pa.array([1], pa.int64())})).select("w").collect()

    def warm_up(self, jobs: int) -> Iterator[int]:
        """The first hundred jobs of a JVM are slow; yields after each so that a caller can show progress."""
        slots = DeltaLayout(2, 1)
        leaf = [(1, "{a}", "1.50", None, "1", "1"), (-1, "{b}", "2", "3", "2", "2")]
        kinds = [
            WorkItem(slots, DeltaRows(slots, leaf)),
            WorkItem(DeltaLayout(), DeltaRows(DeltaLayout(), [row[:2] for row in leaf])),
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
        leaf, misfits = combine([item.leaf for item in items], slots)
        is_bulk = len(items) == 1 and len(leaf) > BATCH_ROWS
        with self._errors():
            self.jobs += 1
            net = _net(self._frame(leaf, bulk=is_bulk), slots)
            if is_bulk:
                table = net.toArrow()
                return [misfits.back(0, _typed(slots, [table.column(n).to_pylist() for n in result_names(slots)]))]
            # Rows, because toArrow asks the server for the schema first.
            collected = net.collect()
        split: list[list[Sequence[Any]]] = [[] for _ in items]
        for row in map(tuple, collected):  # plain ones: a Row looks at what it is asked for
            split[row[0]].append(row)
        return [misfits.back(number, _delta(slots, rows)) for number, rows in enumerate(split)]

    def _frame(self, table: pa.Table, *, bulk: bool = False) -> DataFrame:
        return self._connected(bulk=bulk).createDataFrame(table).coalesce(1)

    def _connected(self, *, bulk: bool) -> SparkSession:
        with self._lock:
            if bulk not in self._sessions:
                from pyspark.sql import SparkSession
                from pyspark.sql.connect.client.retries import DefaultPolicy

                session = SparkSession.builder.remote(self._remote()).create()
                # The client's own policy holds on to a dead server for ten minutes; the wave is the unit of retrying.
                policy = DefaultPolicy(max_retries=4, backoff_multiplier=3, max_backoff=1000)
                session.client.set_retry_policies([policy])
                self._sessions[bulk] = session  # known before its first call, so that a failure discards it
                if not bulk:
                    # Else each of the six parts of an answer is acknowledged by a call of its own (8 ms of CPU in all).
                    # Of an answer that was begun twice the client finds the second one's offsets wrong.
                    session.client.disable_reattachable_execute()
                for name, value in (BULK_CONF if bulk else SMALL_CONF).items():
                    session.conf.set(name, value)
            return self._sessions[bulk]

    def _discard(self) -> None:
        """The next call connects anew. Left open, a client would call the dead server again when the process ends."""
        with self._lock:
            sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            _close(session)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What is neither a refused plan nor an overflow means that the server went away or is ill: connect anew, try
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
    """Once, before there are threads: two that import Spark's client at the same time may find it half made."""
    from importlib import import_module

    for name in ("grpc", "pandas", "pyarrow", "pyspark.errors", "pyspark.sql.connect.session"):
        import_module(name)
    for name in ("pyspark.sql.functions", "pyspark.sql.connect.functions", "pyspark.sql.connect.client.retries"):
        import_module(name)


def _first_line(error: BaseException) -> str:
    """The first that says something: some begin with an empty one."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:300]


def result_names(slots: DeltaLayout) -> list[str]:
    """Columns of a result after the table number.

    h: identity of the key; n: net weight; k: key; per sum its rows with a value and its total; per extreme the text of
    the one that came and of the one that went.
    """
    sums = [f"s{i}_{what}" for i in range(slots.sums) for what in ("n", "s")]
    return ["h", "n", "k", *sums, *(f"x{i}_{what}" for i in range(slots.extremes) for what in ("i", "d"))]


def _identity(key: Column) -> Column:
    from pyspark.sql import functions as f

    return f.xxhash64(key)


def _delta(slots: DeltaLayout, rows: Sequence[Sequence[Any]]) -> Delta:
    """Rows of a result, table number first."""
    if not rows:
        return _typed(slots, [[] for _ in result_names(slots)])
    return _typed(slots, list(map(list, zip(*rows, strict=True)))[1:])


def _typed(slots: DeltaLayout, columns: Sequence[list[Any]]) -> Delta:
    """Columns in the order of `result_names`, by their meaning."""
    identities, weights, keys, *rest = columns
    pairs = list(zip(rest[::2], rest[1::2], strict=True))
    sums = tuple(SumDelta(rows, totals) for rows, totals in pairs[: slots.sums])
    return Delta(identities, weights, keys, sums, tuple(ExtremeDelta(*pair) for pair in pairs[slots.sums :]))


def _net(frame: DataFrame, slots: DeltaLayout) -> DataFrame:
    folded, shown, is_kept = _net_columns(slots)
    net = frame.groupBy("t", "k").agg(*folded)
    if slots == DeltaLayout():
        net = net.where(is_kept)
    return net.select(*shown)


@cache
def _net_columns(slots: DeltaLayout) -> tuple[Sequence[Column], Sequence[Column], Column]:
    """What is folded, what is shown, which rows are kept. Made once: the client takes some 0.2 ms for each function
    that it calls, as it looks where the call stands."""
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
    shown = [f.col("t"), _identity(f.col("k")).alias("h"), *map(f.col, result_names(slots)[1:])]
    return folded, shown, f.col("n") != 0
