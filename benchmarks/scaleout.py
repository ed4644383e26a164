"""The same full refreshes on a standalone cluster with one executor and with two, of one core each.

PostgreSQL, the replicas and the driver are the same; only the number of executors differs. The time is that of the
evaluation on Spark, from the replicas to the staged result: the apply runs in PostgreSQL and does not scale with
executors.

Bar: with two executors the evaluation is at least 1.6 times as fast. Executors compile their hot code while they work,
each for itself and on the same two cores, so `--warm-up` refreshes come first.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from common.harness import Bench, note, report

sys.path.insert(0, str(Path(__file__).parents[1]))

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.cluster import StandaloneCluster

BAR = 1.6
EXECUTORS = (1, 2)
EXECUTOR = {"spark.executor.memory": "2g", "spark.executor.cores": "1", "spark.network.timeout": "600s"}
SCHEMA = """
CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
CREATE TABLE sale (id int PRIMARY KEY, customer_id int NOT NULL, qty int NOT NULL, price numeric(10, 2) NOT NULL);
INSERT INTO customer SELECT i, 'region ' || i % 50 FROM generate_series(1, {customers}) AS i;
INSERT INTO sale SELECT i, 1 + i % {customers}, i % 9, i % 1000 * 0.25 FROM generate_series(1, {rows}) AS i;
"""
QUERY = (
    "SELECT c.region, count(*) AS n, count(DISTINCT s.customer_id) AS customers, sum(s.qty * s.price) AS revenue, "
    "max(s.price) AS dearest FROM sale s JOIN customer c ON c.id = s.customer_id GROUP BY c.region"
)


@contextmanager
def cluster(executors: int, folder: Path) -> Iterator[SparkEngine]:
    folder.mkdir()
    standalone = StandaloneCluster(folder, executors, memory="3g")
    try:
        standalone.wait_ready()
        server = SparkServer.start(Settings(spark_master=standalone.url, spark_conf=EXECUTOR))
        try:
            server.wait_ready(180)
            engine = SparkEngine(lambda: server.url)
            yield engine
            engine.close()
        finally:
            server.stop()
    finally:
        standalone.stop()


def measured(dsn: str, engine: SparkEngine, name: str, root: Path, rounds: int, warm_up: int) -> dict[str, float]:
    """Milliseconds of each part of a full refresh on Spark."""
    line = Bench(dsn, engine, {"replica_root": str(root)})
    try:
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '24h', 'FULL', engine => 'spark')", name, QUERY)
        refresh(line, name)  # builds the replicas; the code of the query is generated
        found = []
        for _ in range(warm_up + rounds):
            line.sql("UPDATE sale SET qty = qty + 1 WHERE id = 1")
            found.append(refresh(line, name))
            note(f"  {name}: {found[-1]}")
        found = found[warm_up:]
        line.verify(name)
        line.sql("SELECT pgtrickle.drop_stream_table(%s)", name)
    finally:
        line.close()
    return {part: round(median(one[part] for one in found), 1) for part in found[0]}


def refresh(line: Bench, name: str) -> dict[str, float]:
    line.sql("SELECT pgtrickle.refresh_stream_table(%s)", name)
    outcome = line.tick(name, "FULL")
    if outcome.engine is None or outcome.engine.engine != "spark":
        raise SystemExit(f"{name} was not evaluated on Spark: {outcome.engine}")
    return dict(outcome.timings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=12, help="refreshes that are not measured")
    given = parser.parse_args()
    found: dict[int, dict[str, float]] = {}
    settings = {"shared_buffers": "1GB", "max_wal_size": "8GB", "synchronous_commit": "off"}
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres.create(durable=False, settings=settings) as postgres,
    ):
        line = Bench(postgres.dsn(), None)
        note(f"writing {given.rows} rows")
        line.sql(SCHEMA.format(rows=given.rows, customers=given.rows // 20))
        line.sql("VACUUM ANALYZE")
        for executors in EXECUTORS:
            note(f"{executors} executors")
            place = Path(folder)
            with cluster(executors, place / f"cluster{executors}") as engine:
                root = place / "replicas"
                found[executors] = measured(
                    postgres.dsn(), engine, f"of_{executors}", root, given.rounds, given.warm_up
                )
        line.close()
    one, two = (found[n]["evaluate"] for n in EXECUTORS)
    report("scaleout", one / two >= BAR, rows=given.rows, speed_up=round(one / two, 2), bar=BAR, parts_ms=found)


if __name__ == "__main__":
    main()
