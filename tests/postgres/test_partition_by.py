# ruff: noqa: E501 - a query is easier to read on one line
"""Partitioned stream tables: partitions are created as keys appear, and no reader notices."""

from __future__ import annotations

from random import Random
from typing import Any

import psycopg
import pytest

from pgtrickle.db.install import uninstall
from tests.feeds import Consumer
from tests.line import Line

SALES = """
CREATE TYPE mood AS ENUM ('good', 'bad', 'odd; one');
CREATE TABLE sales (
    id int PRIMARY KEY, day date, at timestamptz, moment timestamp, region text, code char(4), big bigint, small smallint, n numeric,
    m mood, flag bool, u uuid, "Odd ""k"" x" text, v int
);
"""
DAYS = [
    "NULL",
    "'2024-01-31'",
    "'2024-02-01'",
    "'2024-02-29'",
    "'infinity'",
    "'-infinity'",
    "'0044-03-15 BC'",
    "'0001-01-01'",
]
DAYS += ["'9999-12-31'", "'10000-01-01'", "'5874897-12-31'", "'1999-12-31'"]
MOMENTS = [*(d for d in DAYS if "5874897" not in d), "'2024-03-31 02:30:00.123456'", "'294276-12-31 23:59:59.999999'"]
VALUES = {
    "day": DAYS,
    "at": [*MOMENTS, "'2024-01-31 23:30:00-05'", "'2024-02-01 00:00:00+00'"],
    "moment": MOMENTS,
    "region": [
        "NULL",
        "''",
        "'EU'",
        "'eu'",
        "'E U'",
        "'it''s'",
        r"'back\slash'",
        "'NULL'",
        "'others'",
        "'Ünïcödé'",
        "repeat('x', 200)",
    ],
    "code": ["NULL", "'a'", "'a  '", "'abcd'", "''"],
    "big": ["NULL", "0", "-1", "1", "999999", "1000000", "9223372036854775807", "-9223372036854775808"],
    "small": ["NULL", "0", "-1", "32767", "-32768", "100"],
    "n": ["NULL", "1.0", "1.00", "-0.5", "'NaN'", "'Infinity'", "'-Infinity'", "1e40", "-1e40", "1e30", "99.999"],
    "m": ["NULL", "'good'", "'bad'", "'odd; one'"],
    "flag": ["NULL", "true", "false"],
    "u": ["NULL", "'00000000-0000-0000-0000-000000000001'", "'ffffffff-0000-0000-0000-000000000001'"],
    '"Odd ""k"" x"': ["NULL", "'a'", "'b'"],
}
KINDS = [
    "day",
    "RANGE(day, 1 year)",
    "range ( day , '7 days' )",
    "RANGE(at)",
    "RANGE(at, 1 hour)",
    "RANGE(moment, 3 months)",
    "LIST(day)",
    "region",
    "LIST:region",
    "LIST(code)",
    "LIST(n)",
    "HASH(n, 3)",
    "HASH(region)",
    "RANGE(big, 1000000)",
    "RANGE(small, 10000)",
    "RANGE(n, 10)",
    "LIST(big)",
    "m",
    "flag",
    "LIST(u)",
    '"Odd ""k"" x"',
    "HASH:u:4",
]


def insert(random: Random, id_: int, *, only: str | None = None, value: str | None = None) -> str:
    row = {column: random.choice(values) for column, values in VALUES.items()}
    if only is not None and value is not None:
        row[only] = value
    return (
        f"INSERT INTO sales ({', '.join(['id', *row, 'v'])}) VALUES ({', '.join([str(id_), *row.values()])}, {id_ % 4}) "
        "ON CONFLICT (id) DO UPDATE SET v = excluded.v + 1"
    )


def partitions(line: Line, name: str) -> list[str]:
    return [
        bound
        for (bound,) in line.sql(
            "SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid "
            "WHERE inhparent = %s::regclass ORDER BY 1",
            name,
        )
    ]


def column_of(kind: str) -> str:
    return next(c for c in sorted(VALUES, key=len, reverse=True) if c in kind)


@pytest.mark.parametrize("shape", ["rows", "groups", "topk", "distinct"])
def test_every_kind_of_key_is_followed(sparkless: Line, shape: str) -> None:
    line, random = sparkless, Random(3)
    line.sql(SALES)
    names = {}
    for i, kind in enumerate(KINDS):
        name, key = f's_{i}" x' if i == 2 else f"s_{i}", column_of(kind)
        query = {
            "rows": f"SELECT v, {key}, id FROM sales",
            "groups": f"SELECT {key}, count(*) AS rows, sum(v) AS total, max(id) AS last FROM sales GROUP BY {key}",
            "topk": f"SELECT {key}, id FROM sales ORDER BY v, id LIMIT 12",
            "distinct": f"SELECT DISTINCT {key}, v FROM sales WHERE v < 3",
        }[shape]
        quoted = '"' + name.replace('"', '""') + '"'
        line.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', partition_by => %s)",
            quoted,
            query,
            kind,
        )
        names[name] = (quoted, query, kind)
    for i in range(6):
        line.sql(insert(random, i))
    line.tick()
    for step in range(4):
        for i in range(6):
            line.sql(insert(random, 10 * step + 6 + i))
        if step == 1:
            for column, values in VALUES.items():
                for i, value in enumerate(values):
                    line.sql(insert(random, 100 + i, only=column, value=value))
                    line.sql(f"UPDATE sales SET {column} = {value} WHERE id = {100 + i}")
        line.sql(
            f"DELETE FROM sales WHERE id % 7 = {step}; UPDATE sales SET v = v + 1, day = day WHERE id % 5 = {step}"
        )
        line.tick()
        for quoted, query, kind in names.values():
            action, status, why = line.last(quoted.strip('"').replace('""', '"'))
            assert (action, status) == ("DIFFERENTIAL", "COMPLETED"), (kind, action, status, why)
            assert same(line, query, quoted), (kind, step)
    for quoted, _, kind in names.values():
        assert partitions(line, quoted), kind


def same(line: Line, query: str, name: str) -> bool:
    """Equal as texts, except for those of equal values, of which a group has one."""
    columns = line.sql(
        "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname !~ '^__pgt_'",
        name,
    )[0][0]
    stored = f"SELECT {columns} FROM {name}"
    missing = line.sql(f"({query}) EXCEPT ALL ({stored})")
    extra = line.sql(f"({stored}) EXCEPT ALL ({query})")
    assert (missing, extra) == ([], [])
    return True


def create(line: Line, name: str, query: str, partition_by: str | None = None, mode: str = "DIFFERENTIAL") -> None:
    line.sql(
        "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, partition_by => %s)",
        name,
        query,
        mode,
        partition_by,
    )
    line.tick()


@pytest.fixture
def days(sparkless: Line) -> Line:
    sparkless.sql("CREATE TABLE t (id int PRIMARY KEY, day date, region text, v int)")
    sparkless.sql(
        "INSERT INTO t VALUES (1, '2024-01-05', 'EU', 1), (2, '2024-01-05', 'US', 2), (3, '2024-02-01', 'EU', 3)"
    )
    return sparkless


def test_partitions_are_created_with_their_first_row(days: Line) -> None:
    create(days, "s", "SELECT id, day, v FROM t", "RANGE(day, 1 month)")
    january, february = (
        "FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')",
        "FOR VALUES FROM ('2024-02-01') TO ('2024-03-01')",
    )
    assert partitions(days, "s") == [january, february]
    assert days.sql("SELECT tableoid::regclass::text FROM s WHERE id = 3") == [("s_p20240201",)]
    days.sql("INSERT INTO t VALUES (4, '2024-02-29', 'EU', 4), (5, '2023-12-31', 'EU', 5), (6, NULL, 'EU', 6)")
    days.tick()
    days.check("s")
    assert partitions(days, "s") == ["DEFAULT", "FOR VALUES FROM ('2023-12-01') TO ('2024-01-01')", january, february]
    days.sql(
        "UPDATE t SET day = '2024-03-01' WHERE id <= 2; UPDATE t SET day = NULL WHERE id = 3; DELETE FROM t WHERE id = 6"
    )
    days.tick()
    days.check("s")
    (plan,) = days.sql("EXPLAIN (FORMAT JSON) SELECT * FROM s WHERE day = '2024-02-10'")[0]
    assert plan[0]["Plan"]["Relation Name"] == "s_p20240201"


@pytest.mark.parametrize(
    ("partition_by", "message", "hint"),
    [
        ("nothing", "the query returns no column nothing", "Its columns are id, day, region, v."),
        (
            "id",
            "how to partition by id, which has type integer, is not said",
            "Write RANGE(id, 1000000), LIST(id) or HASH(id, 8).",
        ),
        ("RANGE(id)", "needs the number of values", "Write RANGE(id, 1000000)."),
        ("RANGE(id, -1)", "needs the number of values", "Write RANGE"),
        ("RANGE(day, 1 hour)", "'1 hour' is not a step of a range over date", "1 month"),
        ("RANGE(day, 1 month 1 day)", "is not a step", "1 month"),
        ("RANGE(day, sometimes)", "is not a step", "1 month"),
        ("RANGE(region)", "ranges of type text are not supported", "LIST(region)"),
        ("LIST(day, 3)", "LIST takes a column", "LIST(day)"),
        ("HASH(id, 0)", "'0' is not a number of partitions", "between 1 and 1000"),
        ("id, day", "'id, day' is not a partition_by", "RANGE(day, 1 month)"),
        ("", "is not a partition_by", "LIST(region)"),
        ("LIST(id); DROP TABLE t", "is not a partition_by", "LIST(region)"),
    ],
)
def test_what_cannot_be_partitioned_is_refused_with_the_reason(
    days: Line, partition_by: str, message: str, hint: str
) -> None:
    with pytest.raises(psycopg.errors.InvalidParameterValue) as refused:
        create(days, "s", "SELECT id, day, region, v FROM t", partition_by)
    assert message in str(refused.value.diag.message_primary)
    assert hint in str(refused.value.diag.message_hint)
    assert days.sql("SELECT to_regclass('s') IS NULL") == [(True,)]


def test_readers_follow_a_new_partition_by_its_rows(days: Line) -> None:
    line = days
    create(line, "s", "SELECT id, day, region, v FROM t", "day")
    line.sql("CREATE VIEW shown AS SELECT day, v FROM s WHERE v > 0")
    create(line, "totals", "SELECT day, sum(v) AS total, count(*) AS n FROM s GROUP BY day", "RANGE(day, 1 year)")
    create(line, "of_view", "SELECT v, day FROM shown")
    create(line, "last", "SELECT max(total) AS most FROM totals")
    line.sql("CREATE TABLE copied (id int, day date, region text, v int)")
    consumer = Consumer(line.conn, "s", "me", "copied")
    consumer.apply()
    line.tick()
    while consumer.apply():
        pass
    resets = consumer.resets
    oid = line.sql("SELECT 's'::regclass::oid")
    for i, day in enumerate(["2024-03-01", "2025-01-01", "1990-07-07", None]):
        line.sql("INSERT INTO t VALUES (%s, %s, 'EU', 100)", 10 + i, day)
        line.sql("UPDATE t SET day = %s WHERE id = 1", day)
        line.tick()
        for name in ("s", "totals", "of_view"):
            line.check(name)
        line.equal("last")
        while consumer.apply():
            pass
        assert line.sql("TABLE copied EXCEPT ALL SELECT id, day, region, v FROM s") == []
        assert line.sql("SELECT id, day, region, v FROM s EXCEPT ALL TABLE copied") == []
    assert consumer.resets == resets
    assert len(partitions(line, "s")) == 6
    assert len(partitions(line, "totals")) == 4
    assert line.sql("SELECT 's'::regclass::oid") == oid
    # nothing was loaded a second time
    assert (
        line.sql(
            "SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action IN ('FULL', 'REINITIALIZE') GROUP BY pgt_id"
        )
        == [(1,)] * 4
    )


def test_values_beyond_the_most_partitions_share_one(days: Line) -> None:
    ((text,),) = days.sql("SELECT pg_get_functiondef('pgtrickle._add_partitions'::regproc)")
    assert "most integer DEFAULT 1000" in text
    days.sql(text.replace("most integer DEFAULT 1000", "most integer DEFAULT 4"))
    create(days, "s", "SELECT id, region, day FROM t", "LIST(region)")
    days.sql("INSERT INTO t (id, region) VALUES (10, 'A'), (11, NULL), (12, 'B'), (13, 'C')")
    days.tick()
    assert partitions(days, "s") == ["DEFAULT", *(f"FOR VALUES IN ({v})" for v in ("'A'", "'B'", "'EU'", "'US'"))]
    days.sql("INSERT INTO t (id, region) VALUES (7, 'C'), (8, NULL), (9, 'B'); UPDATE t SET region = 'D' WHERE id = 1")
    days.tick()
    days.check("s")
    assert days.sql("SELECT count(*) FROM s_pothers") == [(5,)]
    assert len(partitions(days, "s")) == 5

    create(days, "r", "SELECT id, day FROM t", "RANGE(day, 1 day)")
    assert partitions(days, "r")[0] == "DEFAULT"
    for i in range(5):
        days.sql("INSERT INTO t (id, day) VALUES (%s, %s)", 40 + i, f"2000-01-0{i + 1}")
        days.tick()
        days.check("r")
    days.sql("UPDATE t SET day = NULL WHERE id = 41; UPDATE t SET day = '1980-01-01' WHERE id = 2")
    days.tick()
    days.check("r")
    assert len(partitions(days, "r")) == 4


def test_no_refresh_waits_for_a_long_reader(days: Line) -> None:
    line = days
    create(line, "plain", "SELECT id, day FROM t WHERE day IS NOT NULL", "day")
    create(line, "nulls", "SELECT id, day FROM t", "day")
    line.sql("INSERT INTO t VALUES (20, NULL, 'EU', 1)")
    line.tick()
    with psycopg.connect(line.dsn) as reader:
        reader.execute("SELECT count(*) FROM plain, nulls")
        line.sql("INSERT INTO t VALUES (21, '2030-01-01', 'EU', 1)")
        line.tick()
        line.check("plain")
        line.check("nulls")
        assert line.sql("SELECT tableoid::regclass::text, * FROM nulls WHERE id = 21")[0][:2] == ("nulls_pnull", 21)
    line.sql(
        "INSERT INTO t VALUES (22, '2030-01-02', 'EU', 1), (23, '2031-01-01', 'EU', 1); DELETE FROM t WHERE id = 20"
    )
    line.tick()
    line.check("nulls")
    assert line.sql("SELECT tableoid::regclass::text FROM nulls WHERE id > 20 ORDER BY id") == [
        ("nulls_pnull",),
        ("nulls_pnull",),
        ("nulls_p20310101",),
    ]


def test_null_keys_and_readers_in_one_wave(days: Line) -> None:
    """Our own session that reads holds the default partition while another one of ours writes."""
    line = days
    line.sql("INSERT INTO t VALUES (20, NULL, 'EU', 1)")
    create(line, "s", "SELECT id, day, v FROM t", "day")
    create(line, "joined", "SELECT a.id, b.day FROM s a JOIN s b ON a.v = b.v", "day")
    create(line, "totals", "SELECT day, max(v) AS most FROM s GROUP BY day", "day")
    for i in range(4):
        line.sql("INSERT INTO t VALUES (%s, %s, 'EU', %s)", 30 + i, f"{2031 + i}-01-01", i)
        line.tick()
        for name in ("s", "joined", "totals"):
            line.check(name)


def test_definition_is_altered_within_its_partitions(days: Line) -> None:
    line = days
    query = "SELECT day, v FROM t"

    def replace(query: str, **options: Any) -> None:
        named = "".join(f", {k} => %s" for k in options)
        line.sql(f"SELECT pgtrickle.create_or_replace_stream_table('s', %s{named})", query, *options.values())
        line.tick()

    replace(query, partition_by="RANGE(day, 1 month)")
    replace(query, partition_by="range( day )", schedule="1h")
    replace(query, schedule="calculated")
    assert line.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'FULL'") == [(1,)]
    replace("SELECT day, v, id FROM t", partition_by="day")
    line.sql("INSERT INTO t VALUES (30, '2026-01-01', 'EU', 1)")
    line.tick()
    line.check("s")
    for other in ("LIST(day)", "RANGE(day, 2 months)", "HASH(day)"):
        with pytest.raises(psycopg.errors.WrongObjectType, match="cannot be changed"):
            replace("SELECT day, v, id FROM t", partition_by=other)
        with pytest.raises(psycopg.errors.WrongObjectType, match="cannot be changed"):
            line.sql("SELECT pgtrickle.alter_stream_table('s', partition_by => %s)", other)
    with pytest.raises(psycopg.errors.WrongObjectType, match=r"changes columns of public\.s, which is partitioned"):
        replace("SELECT v, day FROM t")
    create(line, "plain", query)
    with pytest.raises(psycopg.errors.WrongObjectType, match="cannot be changed"):
        line.sql("SELECT pgtrickle.alter_stream_table('plain', partition_by => 'day')")
    assert line.sql("SELECT pgtrickle.export_definition('s') ~ 'partition_by => ''RANGE\\(day, 1 month\\)'''") == [
        (True,)
    ]


def test_rows_and_partitions_are_protected_and_repaired(days: Line) -> None:
    line = days
    create(line, "s", "SELECT region, sum(v) AS total FROM t GROUP BY region", "region")
    create(line, "b", "SELECT id, region FROM t", "HASH(id, 3)")
    line.sql("SET pgtrickle.applies = off")
    for table in ("s", "s_peu_f2e6e3b9"):
        with pytest.raises(psycopg.errors.WrongObjectType, match=r"cannot delete from stream table public\.s:"):
            line.sql(f"DELETE FROM {table}")
    for name in ("s", "b"):
        line.sql("SELECT pgtrickle.protect_stream_table(%s, false)", name)
    line.sql(
        "INSERT INTO s SELECT region, total + 1, __pgt_row_id FROM s; INSERT INTO s VALUES ('EU', 7, -1); DELETE FROM b WHERE id = 1"
    )
    for name in ("s", "b"):
        line.sql("SELECT pgtrickle.protect_stream_table(%s)", name)
    line.tick()
    line.equal("s")
    line.equal("b")
    line.sql("DROP TABLE s, b")
    for name in ("s", "b"):
        line.sql("SELECT pgtrickle.repair_stream_table(%s)", name)
    line.tick()
    line.equal("s")
    assert len(partitions(line, "b")) == 3
    line.sql("SELECT pgtrickle.drop_stream_table('s'); SELECT pgtrickle.drop_stream_table('b')")
    assert line.sql("SELECT relname FROM pg_class WHERE relname ~ '^[sb](_|$)'") == []


def test_names_that_are_long_or_taken(days: Line) -> None:
    line = days
    line.sql("CREATE TABLE s_p20240101 (a int); CREATE TYPE s_p20240201 AS (a int)")
    create(line, "s", "SELECT id, day FROM t", "day")
    long = "ä" * 31
    create(line, f'"{long}"', "SELECT id, region FROM t", "region")
    create(line, f'"{long[:-1]}b"', "SELECT id, region FROM t", "region")
    line.sql("INSERT INTO t VALUES (9, '2024-01-01', repeat('ö', 300), 9)")
    line.tick()
    for name in ("s", long, f"{long[:-1]}b"):
        line.check(name)
    assert line.sql("SELECT tableoid::regclass::text FROM s ORDER BY id") == [("s_p20240101_1",)] * 2 + [
        ("s_p20240201_1",)
    ] + [("s_p20240101_1",)]


def test_recursion_in_partitions(days: Line) -> None:
    line = days
    line.sql("CREATE TABLE edge (a int, b int); INSERT INTO edge VALUES (1, 2), (2, 3), (3, 4), (2, 5), (5, 1)")
    create(
        line,
        "paths",
        "WITH RECURSIVE p(a, b) AS (SELECT a, b FROM edge UNION SELECT p.a, e.b FROM p JOIN edge e ON e.a = p.b) SELECT a, b FROM p",
        "HASH(b, 4)",
    )
    for text in (
        "DELETE FROM edge WHERE a = 2 AND b = 3",
        "INSERT INTO edge VALUES (4, 6), (5, 3)",
        "DELETE FROM edge WHERE b = 1",
        "INSERT INTO edge VALUES (6, 1)",
    ):
        line.sql(text)
        line.tick()
        line.check("paths")


def test_full_refreshes_write_the_difference(days: Line) -> None:
    line = days
    create(line, "s", "SELECT region, count(*) AS n FROM t GROUP BY region", "region", mode="FULL")
    create(line, "r", "SELECT v, day FROM t", "day", mode="FULL")
    for text in (
        "INSERT INTO t VALUES (8, '2031-01-01', 'APAC', 1), (9, NULL, NULL, 1)",
        "DELETE FROM t WHERE id < 3",
        "TRUNCATE t",
        "INSERT INTO t VALUES (1, '2024-01-01', 'EU', 1)",
    ):
        line.sql(text)
        line.tick()
        line.check("s", "FULL")
        line.check("r", "FULL")


def test_published_by_its_own_name(days: Line) -> None:
    create(days, "s", "SELECT id, day FROM t", "day")
    days.sql("SELECT pgtrickle.stream_table_to_publication('s'); CREATE PUBLICATION everything FOR TABLE t")
    assert days.sql("SELECT pubviaroot FROM pg_publication WHERE pubname = 'pgt_pub_public_s'") == [(True,)]
    assert days.sql("SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'pgt_pub_public_s'") == [("s",)]
    days.sql(
        "INSERT INTO t VALUES (7, '2028-01-01', 'EU', 1); DELETE FROM t WHERE id = 1; UPDATE t SET day = '2029-01-01' WHERE id = 2"
    )
    days.tick()
    days.check("s")
    assert days.sql("SELECT DISTINCT relreplident::text FROM pg_class JOIN pg_partition_tree('s') ON oid = relid") == [
        ("f",)
    ]


def test_uninstall_leaves_a_plain_partitioned_table(days: Line) -> None:
    create(days, "s", "SELECT id, day FROM t", "day")
    rows = days.rows("s")
    days.plane.close()
    with psycopg.connect(days.dsn) as conn:
        uninstall(conn)
    assert sorted(days.sql("TABLE s"), key=repr) == rows
    assert (
        days.sql("SELECT obj_description(relid) FROM pg_partition_tree('s') WHERE obj_description(relid) IS NOT NULL")
        == []
    )
    days.sql("INSERT INTO s VALUES (1, '2024-01-01'); DELETE FROM s_p20240101")
