"""The Spark data source: a stream table's content and its changes, in Spark sessions that know nothing of pgtrickle."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.line import Line

LIMIT = 300  # seconds; detects a hang

TYPES = """
    id int, truth bool, small int2, big int8, price numeric(12,2), loose numeric, real4 float4, real8 float8, name text,
    code char(4), born date, at timestamp, zoned timestamptz, raw bytea, doc jsonb, tags text[], key uuid
"""
ROWS = """
    (1, true, 5, 9000000000, 12.50, 1.500, 1.5, 0.1, 'é "x", y', 'ab', '1969-12-31', '2026-01-02 03:04:05.678901',
     '1960-01-02 03:04:05.5+02', '\\x00ff', '{"a": [1, null]}', '{a,NULL,"b c"}',
     '8d5f7c1e-0000-4000-8000-000000000001'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, false, -5, -1, -0.01, 'NaN', 'NaN', '-Infinity', '', '', '9999-12-31', '0001-01-01', 'epoch', '', 'null', '{}',
     NULL)
"""


@pytest.fixture
def session(spark_url: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_url).create()
    yield session
    session.stop()


@pytest.fixture
def shop(line: Line) -> Line:
    line.sql("CREATE TABLE items (id int PRIMARY KEY, k int, v int)")
    line.sql("INSERT INTO items SELECT i, i % 4, i % 9 FROM generate_series(1, 60) AS i")
    line.create("sums", "SELECT k, count(*) AS n, sum(v) AS total FROM items GROUP BY k")
    return line


def table(session: Any, dsn: str, name: str, **options: str) -> Any:
    return session.read.format("pgtrickle").options(dsn=dsn, table=name, **options)


# -- the content


def test_every_type_arrives_as_it_is(line: Line, session: Any) -> None:
    line.sql(f"CREATE TABLE src ({TYPES}); INSERT INTO src VALUES {ROWS}")
    line.create("all_types", "SELECT * FROM src")
    found = table(session, line.dsn, "all_types").load()
    types = {each.name: each.dataType.simpleString() for each in found.schema.fields}
    assert types == {
        "id": "int", "truth": "boolean", "small": "smallint", "big": "bigint", "price": "decimal(12,2)",
        "loose": "string", "real4": "float", "real8": "double", "name": "string", "code": "string", "born": "date",
        "at": "timestamp_ntz", "zoned": "timestamp", "raw": "binary", "doc": "string", "tags": "string",
        "key": "string",
    }  # fmt: skip
    # Spark's own texts of times, compared with PostgreSQL's: Python's datetime depends on the zone of this process.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    times = "CAST(at AS string) AS at", "CAST(zoned AS string) AS zoned", "hex(raw) AS raw"
    plain = [name for name in types if name not in ("at", "zoned", "raw")]
    rows = found.selectExpr(*plain, *times).orderBy("id").collect()
    first, empty, third = (row.asDict() for row in rows)
    assert first["price"] == Decimal("12.50")
    assert first["born"] == date(1969, 12, 31)
    assert set(empty.values()) == {2, None}
    assert str(third["real4"]) == "nan"
    with psycopg.connect(line.dsn, options="-c timezone=UTC") as conn:
        texts = ", ".join(f'"{name}"::text' for name in ("id", "big", "price", "loose", "name", "doc", "tags", "key"))
        for row, expected in zip(rows, conn.execute(f"SELECT {texts} FROM all_types ORDER BY id"), strict=True):
            got = tuple(None if v is None else str(v) for v in (row[n] for n in (
                "id", "big", "price", "loose", "name", "doc", "tags", "key")))  # fmt: skip
            assert got == expected
        assert [r["code"] for r in rows] == ["ab  ", None, "    "]
        shown = conn.execute("SELECT at::text, zoned::text, upper(encode(raw, 'hex')) FROM all_types ORDER BY id")
        for row, (at, zoned, raw) in zip(rows, shown, strict=True):
            assert (row["at"], row["raw"]) == (at, raw)
            assert row["zoned"] == (None if zoned is None else zoned.removesuffix("+00"))


def test_filters_reach_the_database(line: Line, session: Any) -> None:
    """A row that Spark could not take is not read at all if a filter of Spark excludes it."""
    line.sql("CREATE TABLE src (id int, until date)")
    line.sql("INSERT INTO src SELECT i, '2026-01-01' FROM generate_series(1, 9) AS i")
    line.sql("INSERT INTO src VALUES (10, 'infinity'), (NULL, 'infinity')")
    line.create("t", "SELECT id, until FROM src")
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    found = table(session, line.dsn, "t", pushFilters="true").load().where("id < 10 AND until > DATE '2020-01-01'")
    assert sorted(row["id"] for row in found.collect()) == list(range(1, 10))


# -- the changes


def changes(session: Any, line: Line, **options: str) -> Any:
    return session.readStream.format("pgtrickle").options(
        **{"dsn": line.dsn, "table": "sums", "subscriber": "lake", **options}
    )


def run_all(frame: Any, sink: Path, checkpoint: Path) -> None:
    """Everything that is there now."""
    query = start(frame, sink, checkpoint, availableNow=True)
    assert query.awaitTermination(LIMIT)
    if query.exception() is not None:
        raise query.exception()


def start(frame: Any, sink: Path, checkpoint: Path, **trigger: Any) -> Any:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", f"file://{checkpoint}")
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start(f"file://{sink}")


def replay(session: Any, sink: Path) -> tuple[Counter[tuple[Any, ...]], int]:
    """The table that the changes make, and the number of resets; every deleted row must have been there."""
    copy: Counter[tuple[Any, ...]] = Counter()
    resets = 0
    rows = session.read.parquet(f"file://{sink}").collect()
    for lsn in sorted({row["_lsn"] for row in rows}):
        window = [(row["_action"], tuple(row)[2:]) for row in rows if row["_lsn"] == lsn]
        if any(action == "reset" for action, _ in window):
            resets += 1
            copy.clear()
        copy.subtract(row for action, row in window if action == "delete")
        assert min(copy.values(), default=0) >= 0
        copy.update(row for action, row in window if action == "insert")
    return +copy, resets


def stored(line: Line) -> Counter[tuple[Any, ...]]:
    return Counter(line.rows("sums"))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def change(line: Line, number: int) -> None:
    line.sql("UPDATE items SET v = v + %s WHERE id %% 7 = %s", number, number % 7)
    line.sql("INSERT INTO items VALUES (%s, %s, %s)", 1000 + number, number % 5, number)
    line.tick()


def captured(line: Line, subscriber: str = "lake") -> None:
    """The control plane has noticed the subscriber."""
    line.sql("SELECT pgtrickle.create_subscriber('sums', %s)", subscriber)
    line.plane.tidy()


def gated(frame: Any, gate: Path) -> Any:
    """The same rows, which no sink gets while a file exists."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    closed = str(gate)

    @f.udf(StringType(), useArrow=False)  # the type's text would need a session that is active in this thread
    def passed(text: str) -> str:
        import os
        import time

        while os.path.exists(closed):  # noqa: PTH110 - this runs in a process of Spark's
            time.sleep(0.05)
        return text

    return frame.withColumn("_action", passed("_action"))


def test_a_batch_that_was_stopped_comes_again_as_it_was(shop: Line, session: Any, tmp_path: Path) -> None:
    """Also the first batch, which is the whole table: though the table has changed since."""
    sink, checkpoint, gate = tmp_path / "sink", tmp_path / "checkpoint", tmp_path / "closed"
    gate.touch()
    captured(shop)
    before = stored(shop)
    query = start(gated(changes(session, shop).load(), gate), sink, checkpoint)
    until(lambda: (checkpoint / "offsets" / "0").exists())
    change(shop, 1)
    query.stop()
    gate.unlink()
    change(shop, 2)
    stream = gated(changes(session, shop, maxRowsPerBatch="1").load(), gate)
    run_all(stream, sink, checkpoint)
    copy, resets = replay(session, sink)
    assert (copy, resets) == (stored(shop), 1)
    assert len(list((checkpoint / "commits").glob("[0-9]*"))) == 3  # the table, and a batch for each refresh
    rows = session.read.parquet(f"file://{sink}").collect()
    first = min(row["_lsn"] for row in rows)
    inserted = (tuple(row)[2:] for row in rows if (row["_lsn"], row["_action"]) == (first, "insert"))
    assert Counter(inserted) == before
    # Another query cannot use the subscriber.
    with pytest.raises(Exception, match="this query is at the beginning"):
        run_all(stream, tmp_path / "other", tmp_path / "other checkpoint")


@contextmanager
def closed_at_the_end(url: str) -> Iterator[Any]:
    """A session of a server that will be killed: left open, it would call that server when this process ends."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).create()
    try:
        yield session
    finally:
        session.client.close()


def test_nothing_is_lost_or_doubled_when_spark_is_killed(shop: Line, session: Any, tmp_path: Path) -> None:
    sink, checkpoint, gate = tmp_path / "sink", tmp_path / "checkpoint", tmp_path / "closed"
    captured(shop)
    server = SparkServer.start(Settings(spark_master="local[2]", spark_driver_memory_mb=1024))
    try:
        server.wait_ready(LIMIT)
        with closed_at_the_end(server.url) as other:
            start(gated(changes(other, shop).load(), gate), sink, checkpoint)
            until(lambda: (checkpoint / "commits" / "0").exists())
            gate.touch()
            change(shop, 1)
            until(lambda: (checkpoint / "offsets" / "1").exists())  # the end of the batch is known, its rows are not
            server.kill()
    finally:
        server.stop()
    change(shop, 2)
    gate.unlink()
    run_all(gated(changes(session, shop).load(), gate), sink, checkpoint)
    assert replay(session, sink) == (stored(shop), 1)
