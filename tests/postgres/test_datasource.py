"""The Spark data source without Spark: what its readers say and read, in the process of the test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    Not,
    StringContains,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pgtrickle.db import Connection, connect
from pgtrickle.maintain.feeds import FeedMaintainer
from pgtrickle.pipeline.datasource.options import DataSourceError
from pgtrickle.pipeline.datasource.source import StreamTableSource
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.postgres.rows import create, loaded

MakeRole = Callable[[Database], psycopg.Connection[Any]]


@pytest.fixture
def conn(db: Database) -> Iterator[Connection]:
    with connect(db.dsn, role="test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def keeper(db: Database, conn: Connection) -> FeedMaintainer:
    db.sql("ALTER TABLE t ADD c date, ADD d text, ADD e numeric(6,2)")
    loaded(db, create(db, "s", "SELECT a, b, c, d, e FROM t"))
    db.sql("SELECT pgtrickle.protect_stream_table('s', false)")  # the tests write what a refresh would
    db.sql(
        "INSERT INTO s SELECT i, i % 3, '2026-01-01'::date + i, 'n' || i, i / 4.0, i FROM generate_series(1, 9) AS i"
    )
    return FeedMaintainer("test", conn)


TYPES = {"int": IntegerType(), "bigint": LongType(), "string": StringType(), "date": DateType()}


def schema(ddl: str) -> StructType:
    """Spark itself would ask a JVM."""
    pairs = re.findall(r"`?(\w+)`? (\w+(?:\(\d+,\d+\))?)", ddl)
    return StructType([StructField(name, TYPES.get(type_) or decimal(type_)) for name, type_ in pairs])


def decimal(ddl: str) -> DecimalType:
    return DecimalType(*map(int, re.findall(r"\d+", ddl)))


def source(db: Database, **options: str) -> StreamTableSource:
    return StreamTableSource({"dsn": db.dsn, "table": "s", **options})


def rows(reader: Any, partition: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for batch in reader.read(partition) for row in batch.to_pylist()]


def reader(made: StreamTableSource, ddl: str = "") -> Any:
    return made.reader(schema(ddl or made.schema()))


def test_it_is_found_by_its_name() -> None:
    import pyspark_pgtrickle

    assert pyspark_pgtrickle.DefaultSource.name() == "pgtrickle"


def test_columns_are_chosen_and_read_as_text(db: Database, keeper: FeedMaintainer) -> None:
    assert source(db).schema() == "`a` int, `b` int, `c` date, `d` string, `e` decimal(6,2)"
    assert source(db, columns="d, a").schema() == "`d` string, `a` int"
    assert sorted(rows(reader(source(db, columns="d,a")))) == [(f"n{i}", i) for i in range(1, 10)]
    assert (Decimal("0.50"), 2) in rows(reader(source(db), "e decimal(6,2), a int"))
    db.sql("UPDATE s SET c = 'infinity' WHERE a = 1; UPDATE s SET c = '-infinity' WHERE a = 2")
    assert ("infinity",) in rows(reader(source(db), "c string"))
    with pytest.raises(DataSourceError, match=r"infinity in column c \(hint: read the column as its text"):
        rows(reader(source(db)))
    for ddl, message in (("c int", "column c is read as date or string, not as int"), ("x int", "no column x")):
        with pytest.raises(DataSourceError, match=message):
            reader(source(db), ddl)
    db.sql("ALTER TABLE s ALTER e TYPE numeric(6,3)")
    made = reader(source(db))
    db.sql("ALTER TABLE s ALTER e TYPE numeric(7,3)")
    with pytest.raises(DataSourceError, match="column e of s was dropped or has another type"):
        rows(made)
    db.sql("UPDATE s SET c = NULL, e = 'NaN' WHERE a <= 2")
    with pytest.raises(DataSourceError, match="no form in the type of its column"):
        rows(reader(source(db)))


@pytest.mark.parametrize(
    ("filters", "where"),
    [
        ([LessThan(("a",), 5)], "a < 5"),
        ([GreaterThanOrEqual(("a",), 3), EqualTo(("b",), 0)], "a >= 3 AND b = 0"),
        ([In(("d",), ("n1", "n7", None))], "d IN ('n1', 'n7')"),
        ([EqualTo(("d",), "it's")], "d = 'it''s'"),
        ([GreaterThanOrEqual(("d",), "n5")], "d COLLATE \"C\" >= 'n5'"),
        ([EqualNullSafe(("e",), Decimal("0.50"))], "e = 0.5"),
        ([IsNull(("d",))], "d IS NULL"),
        ([IsNotNull(("c",))], "c IS NOT NULL"),
        ([Not(EqualTo(("a",), 1))], "true"),
        ([StringContains(("d",), "5")], "true"),
        ([EqualTo(("a",), 2**70)], "true"),
        ([EqualTo(("nothing",), 1)], "true"),
    ],
)
def test_filters_become_conditions(db: Database, keeper: FeedMaintainer, filters: list[Any], where: str) -> None:
    """All of them are left to Spark as well, so what has no exact condition may be read."""
    made = reader(source(db, pushFilters="true"))
    assert list(made.pushFilters(filters)) == filters
    assert sorted(r[0] for r in rows(made)) == [a for (a,) in db.sql(f"SELECT a FROM s WHERE {where} ORDER BY a")]


def test_without_the_option_there_is_nothing_that_spark_would_refuse(db: Database, keeper: FeedMaintainer) -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert reader(source(db)).pushFilters.__func__ is DataSourceReader.pushFilters


def test_the_roles_own_privileges_apply(db: Database, keeper: FeedMaintainer, make_role: MakeRole) -> None:
    conn = make_role(db)
    role = conn.info.user
    options = {"dsn": db.server.dsn(db.name, user=role, password="wrong"), "password": "x"}
    table, stream = source(db, **options), source(db, subscriber="c", **options)
    denied = "permission denied for table s"
    for attempt in (
        table.schema,
        stream.schema,
        lambda: table.reader(schema("a int")),
        lambda: stream.streamReader(schema("a int")),
    ):
        with pytest.raises(DataSourceError, match=denied):
            attempt()
    db.sql(f"GRANT SELECT ON s TO {role}")
    made, feed = reader(table), stream.streamReader(schema(stream.schema()))
    assert len(rows(made)) == 9
    db.sql(f"REVOKE SELECT ON s FROM {role}")
    for again in (lambda: rows(made), feed.initialOffset):
        with pytest.raises(DataSourceError, match=denied):
            again()
    db.sql(f"GRANT SELECT ON s TO {role}")
    db.sql("ALTER TABLE s ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON s USING (a = 1)")
    assert [row[0] for row in rows(made)] == [1]
    with pytest.raises(DataSourceError, match="row security"):
        feed.initialOffset()


def test_what_is_wrong_is_said(db: Database, keeper: FeedMaintainer) -> None:
    for options, message in (
        ({"dsn": ""}, "option dsn is missing"),
        ({"table": ""}, "option table is missing"),
        ({"tabel": "x"}, "unknown option tabel"),
        ({"table": "nothing"}, r"stream table 'public\.nothing' does not exist"),
        ({"columns": "nothing"}, r"public\.s has no column nothing"),
        ({"pushFilters": "maybe"}, "option pushFilters is true or false, not 'maybe'"),
        ({"maxRowsPerBatch": "0"}, "option maxRowsPerBatch is a number from 1 to"),
        ({"dsn": "host=127.0.0.1 port=1 password=hidden"}, "(?i)connect"),
    ):
        with pytest.raises(DataSourceError, match=message) as raised:
            source(db, **options).schema()
        assert "hidden" not in str(raised.value)
    with pytest.raises(DataSourceError, match="a subscriber reads changes"):
        source(db, subscriber="c").reader(schema("a int"))
    with pytest.raises(DataSourceError, match="option subscriber is missing"):
        source(db).streamReader(schema("a int"))
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET is_populated = false")
    with pytest.raises(DataSourceError, match=r"public\.s is not loaded yet"):
        rows(reader(source(db)))


def test_positions_are_those_of_the_feed(db: Database, keeper: FeedMaintainer) -> None:
    made = source(db, subscriber="c", columns="a, d")
    assert made.schema() == "`_action` string, `_lsn` bigint, `a` int, `d` string"
    feed = made.streamReader(schema(made.schema()))
    begin = feed.initialOffset()
    assert feed.initialOffset() == begin  # after a crash before the first batch
    assert feed.latestOffset(begin, ReadAllAvailable()) == begin  # not captured yet
    assert feed.partitions(begin, begin) == []
    keeper.expect()
    keeper.maintain(Settings(), 0.0)
    first = feed.latestOffset(begin, ReadAllAvailable())
    (window,) = feed.partitions(begin, first)
    given = rows(feed, window)
    assert sorted(given[1:]) == sorted(("insert", given[0][1], i, f"n{i}") for i in range(1, 10))
    assert given[0] == ("reset", given[0][1], None, None)
    db.sql("DELETE FROM s WHERE a = 1")
    assert sorted(map(str, rows(feed, window))) == sorted(map(str, given))
    db.sql("DELETE FROM s WHERE a = 2")
    # The checkpoint has the first batch, the feed does not know it yet: it was killed before the commit.
    second = feed.latestOffset(first, ReadMaxRows(1))
    assert [row[0::2] for row in rows(feed, *feed.partitions(first, second))] == [("delete", 1)]
    feed.commit(second)
    feed.commit(second)
    third = feed.latestOffset(second, ReadMaxRows(1))
    assert [row[0::2] for row in rows(feed, *feed.partitions(second, third))] == [("delete", 2)]
    for start, message in ((first, "continues after"), (begin, "this query is at the beginning")):
        with pytest.raises(DataSourceError, match=message):  # a checkpoint of before
            feed.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataSourceError, match="has no such position"):
        rows(feed, window)
    with pytest.raises(DataSourceError, match="has no such position"):
        feed.latestOffset({"lsn": "FFFFFFFF/0"}, ReadAllAvailable())
    db.sql("ALTER TABLE s ALTER d TYPE varchar")
    with pytest.raises(DataSourceError, match="column d of s was dropped or has another type"):
        rows(feed, *feed.partitions(second, third))


def test_what_is_available_now_ends(db: Database, keeper: FeedMaintainer) -> None:
    made = source(db, subscriber="c", columns="a", maxRowsPerBatch="1")
    feed = made.streamReader(schema(made.schema()))
    offsets = [feed.initialOffset()]
    keeper.expect()
    keeper.maintain(Settings(), 0.0)

    def run() -> int:
        feed.prepareForTriggerAvailableNow()
        batches = 0
        while (end := feed.latestOffset(offsets[-1], feed.getDefaultReadLimit())) != offsets[-1]:
            assert rows(feed, *feed.partitions(offsets[-1], end))
            db.sql("INSERT INTO s (a, __pgt_row_id) VALUES (%s, 0)", 100 + len(offsets))  # while it runs
            offsets.append(end)
            batches += 1
        return batches

    assert run() == 1  # the whole table
    db.sql("INSERT INTO s (a, __pgt_row_id) VALUES (50, 0)")
    assert run() >= 2
    assert run() >= 1
