"""The Spark part of a wave: one job for all plans that share a signature.

Public DataFrame API over Spark Connect only. Leaves are single partitions, so nothing is shuffled; the session has
adaptive execution and code generation off, which for tiny plans cost more than they save.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.errors import EngineLostError, InexactValueError, InvariantError, PgtrickleError
from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.templates import Signature

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

SMALL_CONF = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
THREADS = 4
_OVERFLOW = ("ARITHMETIC_OVERFLOW", "NUMERIC_VALUE_OUT_OF_RANGE", "CAST_OVERFLOW")


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One plan of a wave: its Spark part and its leaf rows (w, c0, c1, ...)."""

    signature: Signature
    rows: pa.Table


class SparkEngine:
    """A warm session. Threads may share it; after the server was replaced the next call connects again."""

    def __init__(self, remote: Callable[[], str]) -> None:
        self._remote = remote
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="spark")
        self.jobs = 0

    def run(self, items: Sequence[WorkItem]) -> list[Delta]:
        """Runs a wave: items of one signature become one job; different signatures run side by side."""
        groups: dict[Signature, list[int]] = {}
        for position, item in enumerate(items):
            groups.setdefault(item.signature, []).append(position)
        results: list[Delta | None] = [None] * len(items)

        def job(signature: Signature, positions: list[int]) -> None:
            deltas = self._job(signature, [items[p].rows for p in positions])
            for position, delta in zip(positions, deltas, strict=True):
                results[position] = delta

        if len(groups) == 1:
            job(*next(iter(groups.items())))
        else:
            for future in [self._threads.submit(job, s, p) for s, p in groups.items()]:
                future.result()
        return [r for r in results if r is not None]

    def identify(self, rows: pa.Table, keys: int) -> pa.Table:
        """Adds the row identity `h` over the first `keys` columns: the Spark part of a load."""
        import pyarrow as pa

        if not len(rows):
            return rows.append_column("h", pa.array([], pa.int64()))
        with self._errors():
            self.jobs += 1
            frame = self._frame(rows)
            return frame.select("*", _identity([f"c{i}" for i in range(keys)]).alias("h")).toArrow()

    def trivial(self) -> None:
        """The smallest job that takes Arrow in and gives rows back: the yardstick of the latency benchmark."""
        import pyarrow as pa

        with self._errors():
            self._frame(pa.table({"w": pa.array([1], pa.int64())})).select("w").collect()

    def warm_up(self, jobs: int) -> Iterator[int]:
        """The first hundred jobs of a JVM are slow; yields after each so that a caller can show progress."""
        import pyarrow as pa

        bag = Signature("bag", ("long", "string"))
        fold = Signature(
            "fold", ("string",), (("sum", ("decimal:2",)), ("count", ("long",)), ("min", ("long", "string")))
        )
        rows = {"w": pa.array([1, -1], pa.int64()), "c0": pa.array([1, 2], pa.int64()), "c1": pa.array(["a", "b"])}
        fold_rows = {
            "w": pa.array([1, -1], pa.int64()),
            "c0": pa.array(["a", "b"]),
            "c1": pa.array([1, 2], pa.decimal128(38, 2)),
            "c2": pa.array([1, 0], pa.int64()),
            "c3": pa.array([1, 2], pa.int64()),
            "c4": pa.array(["1", "2"]),
        }
        items = [WorkItem(bag, pa.table(rows)), WorkItem(fold, pa.table(fold_rows))]
        for number in range(jobs):
            self.run([items[number % 2]])
            yield number + 1

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            try:
                session.stop()
            except Exception:  # noqa: BLE001 - the server may be gone; there is nothing left to release
                return

    def _job(self, signature: Signature, tables: Sequence[pa.Table]) -> list[Delta]:
        import pyarrow as pa

        tagged = [
            table.append_column("t", pa.array([number] * len(table), pa.int32())) for number, table in enumerate(tables)
        ]
        names = result_names(signature)
        leaf = pa.concat_tables(tagged)
        if not len(leaf):
            return [Delta({n: [] for n in names}) for _ in tables]
        with self._errors():
            self.jobs += 1
            frame = self._frame(leaf)
            result = _net_rows(frame, signature) if signature.kind == "bag" else _net_groups(frame, signature)
            collected = result.collect()
        split: list[list[Sequence[Any]]] = [[] for _ in tables]
        for row in collected:
            split[row[0]].append(row)
        return [Delta({n: [r[i + 1] for r in rows] for i, n in enumerate(names)}) for rows in split]

    def _frame(self, table: pa.Table) -> DataFrame:
        return self._connected().createDataFrame(table).coalesce(1)

    def _connected(self) -> SparkSession:
        with self._lock:
            if self._session is None:
                from pyspark.sql import SparkSession

                session = SparkSession.builder.remote(self._remote()).create()
                for name, value in SMALL_CONF.items():
                    session.conf.set(name, value)
                self._session = session
            return self._session

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Overflow is a value that does not fit; anything else means the server went away or is ill.

        Connect anew, try again.
        """
        from grpc import RpcError
        from pyspark.errors import AnalysisException, PySparkException, PySparkTypeError, PySparkValueError

        try:
            yield
        except PgtrickleError:
            raise
        except (PySparkException, RpcError, OSError) as error:
            text = str(error)
            if any(code in text for code in _OVERFLOW):
                raise InexactValueError("a sum does not fit 38 digits") from error
            if isinstance(error, AnalysisException | PySparkTypeError | PySparkValueError):
                raise InvariantError(f"Spark refused the plan: {_first_line(error)}") from error
            with self._lock:
                self._session = None
            raise EngineLostError(f"Spark did not finish the job: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def result_names(signature: Signature) -> tuple[str, ...]:
    """Columns of a result after the table number, in order."""
    names = ["h", "n", *(f"k{i}" for i in range(len(signature.keys)))]
    for number, (kind, _) in enumerate(signature.measures):
        names += [f"m{number}_{suffix}" for suffix in _SUFFIXES[kind]]
    return tuple(names)


# count: rows with a value. sum: those, and their total. min/max: the extreme that came, the extreme that went (as
# text).
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "count": ("n",),
    "sum": ("n", "s"),
    "min": ("i", "d"),
    "max": ("i", "d"),
    "recompute": (),
}


def _identity(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as f

    return f.xxhash64(*columns) if columns else f.lit(42).cast("long")


def _net_rows(frame: DataFrame, signature: Signature) -> DataFrame:
    from pyspark.sql import functions as f

    columns = [f"c{i}" for i in range(len(signature.keys))]
    net = frame.groupBy("t", *columns).agg(f.sum("w").alias("n")).where(f.col("n") != 0)
    return net.select("t", _identity(columns).alias("h"), "n", *columns)


def _net_groups(frame: DataFrame, signature: Signature) -> DataFrame:
    from pyspark.sql import functions as f

    keys = [f"c{i}" for i in range(len(signature.keys))]
    folded = [f.sum("w").alias("n")]
    position = len(keys)
    w = f.col("w")
    for number, (kind, types) in enumerate(signature.measures):
        value = f.col(f"c{position}")
        name = f"m{number}"
        if kind == "count":
            folded.append(f.sum(w * value).alias(f"{name}_n"))
        elif kind == "sum":
            exact = value.cast("decimal(38,0)") if types[0] == "long" else value
            folded.append(f.sum(f.when(value.isNotNull(), w).otherwise(f.lit(0))).alias(f"{name}_n"))
            folded.append(f.sum(f.when(w > 0, exact).otherwise(-exact)).alias(f"{name}_s"))
        elif kind in ("min", "max"):
            extreme = f.min if kind == "min" else f.max
            pair = f.struct(value, f.col(f"c{position + 1}"))
            for suffix, side in (("i", w > 0), ("d", w < 0)):
                seen = f.when(side & value.isNotNull(), pair)
                folded.append(extreme(seen).getField(f"c{position + 1}").alias(f"{name}_{suffix}"))
        elif kind != "recompute":
            raise InvariantError(f"no fold for measure kind {kind}")
        position += len(types)
    net = frame.groupBy("t", *keys).agg(*folded)
    return net.select("t", _identity(keys).alias("h"), *_folded_names(signature))


def _folded_names(signature: Signature) -> list[str]:
    names = list(result_names(signature))[1:]
    return [f"c{n[1:]}" if n.startswith("k") else n for n in names]
