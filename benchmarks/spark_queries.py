"""TPC-H: each of the 22 queries by PostgreSQL, and compiled for Spark over Parquet files in the form of a replica.

Both engines read the same rows; results are compared first. A time is the best of some rounds, in which the queries
come in turn.

Bar: all queries together on Spark at most 1.5 x PostgreSQL.

    python benchmarks/spark_queries.py [--scale 1] [--queries q01,q02] [--rounds 4] [--conf name=value]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from common.fleet import jvm_mib
from common.harness import note, report
from common.tpch import QUERIES
from rich.console import Console
from rich.table import Table

from pgtrickle.pipeline.engine.columnar import spark_scan
from pgtrickle.pipeline.engine.spark import BULK_CONF
from pgtrickle.pipeline.relational import CompiledQuery
from pgtrickle.pipeline.relational.session import session_conf
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.spark.relational import Both
from tests.tpch.database import TABLES, generate, load

SLOWER_AT_MOST = 1.5
CORES = 2
EPOCH = 10_957  # days from 1970 to 2000
MEMORY_MB = 4096
POSTGRES = {"shared_buffers": "2GB", "work_mem": "64MB", "max_wal_size": "8GB", "synchronous_commit": "off"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--conf", action="append", default=[], help="a setting of the Spark session")
    parser.add_argument("--unchecked", action="store_true", help="do not compare results")
    options = parser.parse_args()
    conf = BULK_CONF | session_conf(CORES) | dict(item.split("=", 1) for item in options.conf)
    with engines(options.scale, conf) as (both, server):
        names = options.queries.split(",")
        compiled = {name: both.compile(QUERIES[name]) for name in names}
        if not options.unchecked:
            check(both, compiled)
        postgres, spark = times(both, compiled, options.rounds)
        memory = jvm_mib(server.pid)
    show(postgres, spark)
    ratio = sum(spark.values()) / sum(postgres.values())
    report(
        "spark_queries",
        ratio <= SLOWER_AT_MOST,
        ratio=round(ratio, 2),
        postgres_s=round(sum(postgres.values()), 2),
        spark_s=round(sum(spark.values()), 2),
        fastest_s=round(sum(min(postgres[n], spark[n]) for n in names), 2),
        spark_mib=memory,
    )


@contextmanager
def engines(scale: float, conf: dict[str, str]) -> Iterator[tuple[Both, SparkServer]]:
    from pyspark.sql import SparkSession

    server = SparkServer.start(Settings(spark_driver_memory_mb=MEMORY_MB))
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tpch") as folder,
            EmbeddedPostgres.create(durable=False, settings=POSTGRES) as postgres,
            psycopg.connect(postgres.dsn(), autocommit=True) as connection,
        ):
            note(f"generating scale {scale}")
            generate(Path(folder), scale)
            note("loading")
            load(connection, Path(folder))
            both = Both(connection, native=True)
            for table in TABLES:
                store(both, Path(folder), table)
            server.wait_ready(180)
            session = SparkSession.builder.remote(server.url).create()
            for name, value in conf.items():
                session.conf.set(name, value)
            both.session = session
            for table in TABLES:
                columns = [(name, c.ddl) for name, c in both.columns(f'"public"."{table}"')]
                # With the schema, as a replica is read: otherwise each analysis of a plan reads the files' footers.
                both.give("public", table, spark_scan(session, [str(Path(folder) / f"{table}.parquet")], columns))
            yield both, server
            session.stop()
    finally:
        server.stop()


def store(both: Both, folder: Path, table: str) -> None:
    """The table as a replica has it."""
    known = dict(both.columns(f'"public"."{table}"'))
    types: dict[str, Any] = {}
    for name, stored in known.items():
        assert stored.type is not None
        types[name] = pa.date32() if stored.type.name == "date" else both.arrow(stored.ddl)
    options = pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
    rows = pyarrow.csv.read_csv(folder / f"{table}.csv", convert_options=options)
    for i, name in enumerate(rows.column_names):
        if types[name] == pa.date32():
            rows = rows.set_column(i, name, pc.subtract(rows[name].cast(pa.int32()), pa.scalar(EPOCH, pa.int32())))
    pyarrow.parquet.write_table(
        rows, folder / f"{table}.parquet", row_group_size=1_000_000, compression="zstd", store_decimal_as_integer=True
    )


def check(both: Both, compiled: dict[str, CompiledQuery]) -> None:
    for name, query in compiled.items():
        wanted: Counter[Any] = both.wanted(QUERIES[name], [c.type for c in query.columns])
        started = time.perf_counter()
        if both.given(query) != wanted:
            raise SystemExit(f"{name} differs from PostgreSQL's answer")
        note(f"{name} is equal, {time.perf_counter() - started:.1f} s cold")


def times(both: Both, compiled: dict[str, CompiledQuery], rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    postgres: dict[str, float] = {}
    spark: dict[str, float] = {}
    for _ in range(rounds):
        for name, query in compiled.items():
            _keep(postgres, name, partial(_by_postgresql, both, name))
            _keep(spark, name, partial(_by_spark, both, query))
    return postgres, spark


def _by_postgresql(both: Both, name: str) -> object:
    return both.connection.execute(QUERIES[name].strip().removesuffix(";").encode()).fetchall()


def _by_spark(both: Both, query: CompiledQuery) -> object:
    return query.build(both.session, both.frame).collect()  # toArrow has the plan analysed once more


def _keep(best: dict[str, float], name: str, run: Callable[[], object]) -> None:
    started = time.perf_counter()
    run()
    best[name] = min(best.get(name, float("inf")), time.perf_counter() - started)


def show(postgres: dict[str, float], spark: dict[str, float]) -> None:
    table = Table("query", "PostgreSQL ms", "Spark ms", "ratio")
    for name in postgres:
        ratio = spark[name] / postgres[name]
        table.add_row(name, f"{postgres[name] * 1000:.0f}", f"{spark[name] * 1000:.0f}", f"{ratio:.2f}")
    total = [sum(times.values()) for times in (postgres, spark)]
    table.add_row("all", f"{total[0] * 1000:.0f}", f"{total[1] * 1000:.0f}", f"{total[1] / total[0]:.2f}")
    Console(stderr=True).print(table)


if __name__ == "__main__":
    main()
