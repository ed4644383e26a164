"""Every type through the whole line, with the values that break naive codecs, on both paths.

Text is compared as well as equality: 1.0 is not 1.00 here, nor -0 the same as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.conftest import Database
from tests.line import Line


@dataclass(frozen=True)
class Type:
    """`values` are SQL literals without quotes. `is_key`: can be grouped by from changes (None: not at all)."""

    name: str
    sql: str
    values: Sequence[str]
    is_key: bool | None = True
    folds: Sequence[str] = ()


TEXTS = (
    "",
    " ",
    "a",
    "a ",
    " a",
    "two\nlines",
    "\\.",
    "first\n\\.\nlast",
    "\\N",
    "NULL",
    '"',
    '""',
    "''",
    ",",
    "\\",
    "\\x41",
    "\r\n",
    "\t",
    "{}",
    "naïve €uro 😀 שלום",
    "e\u0301",
    "\ufeff",
    "\x01\x7f\u0085\u2028",
    "x" * 5000,
)
ENDS = ("min", "max")
ARITHMETIC = ("sum", "avg", "min", "max")
TYPES = (
    Type("bool", "bool", ("t", "f")),
    Type("int2", "int2", ("-32768", "32767", "0"), folds=ARITHMETIC),
    Type("int4", "int4", ("-2147483648", "2147483647", "0"), folds=ARITHMETIC),
    Type("int8", "int8", ("-9223372036854775808", "9223372036854775807", "0"), folds=ARITHMETIC),
    Type("oid", "oid", ("0", "4294967295"), folds=ENDS),
    Type("float4", "float4", ("-0", "0", "NaN", "Infinity", "-Infinity", "1e-45", "3.4028235e38", "0.1"), folds=ENDS),
    Type(
        "float8",
        "float8",
        ("-0", "0", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308", "0.1"),
        folds=ENDS,
    ),
    Type(
        "numeric",
        "numeric",
        (
            "0",
            "-0.00",
            "1.0",
            "1.00",
            "NaN",
            "Infinity",
            "-Infinity",
            "1" + "0" * 200,
            "0." + "0" * 29 + "1",
            "-99999999999999999999999999999999999999.999",
        ),
    ),
    Type("money_like", "numeric(12,3)", ("0.000", "-999999999.999", "0.001", "1.5"), folds=ARITHMETIC),
    Type("rounded", "numeric(5,-2)", ("12300", "-99900", "0"), folds=ARITHMETIC),
    Type("deep", "numeric(38,30)", ("0." + "0" * 29 + "1", "99999999." + "9" * 30), folds=ARITHMETIC),
    Type("text", "text", TEXTS, folds=ENDS),
    Type("collated", 'text COLLATE "C"', TEXTS, folds=ENDS),
    Type("varchar", "varchar(10)", ("", "a", "a  ", "ünïcödé"), folds=ENDS),
    Type("bpchar", "char(5)", ("", "a", "a  ", "ü\n", "abcde"), folds=ENDS),
    Type("one_byte", '"char"', ("", "a", "\\", '"'), folds=()),
    Type("name", "name", ("", "n", "mixed Case", "x" * 63)),
    Type("bytea", "bytea", ("", "\\x00ff", "\\x5c2e0a", "\\x22")),
    Type(
        "date",
        "date",
        (
            "infinity",
            "-infinity",
            "2024-02-29",
            "4713-01-01 BC",
            "0001-01-01",
            "10000-01-01",
            "5874897-12-31",
            "2000-01-01",
        ),
        folds=ENDS,
    ),
    Type("time", "time", ("00:00", "24:00:00", "23:59:59.999999"), folds=ENDS),
    Type("timetz", "timetz", ("12:00+14", "12:00-12:30", "24:00:00-15:59", "12:00+00"), is_key=False, folds=ENDS),
    Type(
        "timestamp",
        "timestamp",
        (
            "infinity",
            "-infinity",
            "2024-02-29 23:59:59.999999",
            "294276-12-31 23:59:59.999999",
            "4713-01-01 00:00 BC",
            "10000-01-01",
            "2025-10-26 02:30",
            "2000-01-01",
        ),
        folds=ENDS,
    ),
    Type(
        "timestamptz",
        "timestamptz",
        (
            "infinity",
            "-infinity",
            "294276-12-30 23:59:59.999999+00",
            "4713-01-02 00:00+00 BC",
            "10000-01-01+00",
            # the hour that Berlin has twice, and the one that it has not
            "2025-10-26 00:30+00",
            "2025-10-26 01:30+00",
            "2025-03-30 01:00+00",
            # before standard time: an offset with seconds
            "1890-01-01 00:00+00",
        ),
        folds=ENDS,
    ),
    Type(
        "interval",
        "interval",
        ("1 mon -1 days", "30 days", "1 mon", "24:00:00", "1 day", "-00:00:00.000001", "infinity", "178000000 years"),
        is_key=False,
        folds=ENDS,
    ),
    Type("uuid", "uuid", ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff")),
    Type("enum", "mood", ("sad", 'o\'k, "fine"', ""), folds=ENDS),
    Type("json", "json", ('{"a" : 1}', '{"a":1}', "[]", "null", '""', '{"a":\n1,"a":2}'), is_key=None),
    Type("jsonb", "jsonb", ('{"b":1,"a":[1.0,1.00]}', "[]", "null", '"\\u20ac"', "1.0", "1.00"), is_key=False),
    Type("ints", "int[]", ("{}", "{1,NULL}", "{{1,2},{3,4}}", "[0:1]={1,2}"), folds=ENDS),
    Type("texts", "text[]", ("{}", '{"",NULL,"NULL","a\\"b","{}",","}'), folds=ENDS),
    Type("numerics", "numeric[]", ("{1.0}", "{1.00}"), is_key=False, folds=ENDS),
    Type("int4range", "int4range", ("empty", "[1,5)", "(,)", "[5,)")),
    Type("numrange", "numrange", ("empty", "[1.0,5.50)", "[1.00,5.5)"), is_key=False),
    Type("tstzrange", "tstzrange", ("empty", "[2025-10-26 00:30+00,infinity)"), is_key=False),
    Type("multirange", "int4multirange", ("{}", "{[1,3),[5,7)}"), is_key=False),
    Type("inet", "inet", ("10.0.0.1", "10.0.0.1/8", "::1", "::ffff:1.2.3.4/128"), folds=ENDS),
    Type("cidr", "cidr", ("10.0.0.0/8", "::/0")),
    Type("macaddr", "macaddr", ("08:00:2b:01:02:03",)),
    Type("macaddr8", "macaddr8", ("08:00:2b:01:02:03:04:05",)),
    Type("composite", "pair", ('(1,"a,b""c")', "(,)", '(,"")', "(2,)"), is_key=False),
    Type("domain", "short_text", ("", "ok", " ok"), folds=ENDS),
    Type("amount", "amount", ("1.50", "-2.00"), folds=ARITHMETIC),
    Type("positive", "positive", ("1", "2147483647"), folds=ARITHMETIC),
    Type("money", "money", ("-92233720368547758.08", "0.01", "0"), is_key=False, folds=ENDS),
    Type("bit", "bit(3)", ("101", "000")),
    Type("varbit", "varbit", ("", "1", "0101")),
    Type("pg_lsn", "pg_lsn", ("0/0", "FFFFFFFF/FFFFFFFF"), folds=ENDS),
    Type("xid8", "xid8", ("0", "18446744073709551615"), folds=ENDS),
    Type("tsvector", "tsvector", ("", "a:1A b:2"), is_key=False),
    Type("tsquery", "tsquery", ("", "a & !b"), is_key=False),
    Type("point", "point", ("(0,-0)", "(1e300,NaN)"), is_key=None),
    Type("path", "path", ("[(0,0),(1,1)]", "((0,0),(1,1))"), is_key=None),
    Type("jsonpath", "jsonpath", ("$.a[*]", "strict $"), is_key=None),
)
SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'o''k, "fine"', '');
CREATE TYPE pair AS (x int, y text);
CREATE DOMAIN short_text AS text CHECK (length(VALUE) < 9);
CREATE DOMAIN amount AS numeric(10, 2);
CREATE DOMAIN positive AS int NOT NULL CHECK (VALUE > 0);
"""
ROWS = max(len(t.values) for t in TYPES) + 1
# Each change moves every column of some rows to another of its values, NULL among them.
CHANGES = (
    "INSERT INTO t SELECT * FROM source WHERE i % 3 = 0",
    "UPDATE t SET ({columns}) = (SELECT {columns} FROM source AS s WHERE s.i = (t.i + 1) % {rows}) WHERE i % 2 = 0",
    "DELETE FROM t WHERE i % 4 = 1",
    "DELETE FROM t",
    "INSERT INTO t SELECT * FROM source WHERE i % 2 = 1",
)


def name(type_: Type) -> str:
    return f"c_{type_.name}"


def value(type_: Type, row: int) -> str | None:
    """The first row is NULL where the type allows it."""
    values = type_.values if type_.name == "positive" else (None, *type_.values)
    return values[row % len(values)]


@pytest.fixture(params=["arrays", "copy"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How delta rows are read and deltas applied: as rows and array parameters, or by COPY both ways."""
    if request.param == "copy":
        monkeypatch.setattr("pgtrickle.refresh.deltas.SMALL_ROWS", 0)
    return str(request.param)


@pytest.fixture
def berlin(installed: Database, make_line: Callable[..., Line]) -> Line:
    """A line in a time zone that has summer, over a table with a column per type."""
    installed.sql(f"""ALTER DATABASE "{installed.name}" SET TimeZone = 'Europe/Berlin'""")
    line = make_line(installed)
    line.sql(SETUP)
    columns = ", ".join(f"{name(t)} {t.sql}" for t in TYPES)
    line.sql(f"CREATE TABLE source (i int, g int, {columns})")
    line.sql("CREATE TABLE t (LIKE source)")
    places = ", ".join("%s" for _ in range(len(TYPES) + 2))
    for row in range(ROWS):
        line.sql(f"INSERT INTO source VALUES ({places})", row, row % 3, *(value(t, row) for t in TYPES))
    line.sql("INSERT INTO t SELECT * FROM source WHERE i % 5 <> 4")
    return line


def all_columns() -> str:
    return ", ".join(name(t) for t in TYPES)


def same_text(line: Line, table: str, query: str, columns: Sequence[str]) -> None:
    texts = ", ".join(f"{c}::text" for c in columns)
    wanted, have = f"SELECT {texts} FROM ({query}) AS q", f"SELECT {texts} FROM {table}"
    for one, other in ((wanted, have), (have, wanted)):
        assert not line.sql(f"({one}) EXCEPT ALL ({other})")


def through_changes(line: Line, check: Callable[[], None]) -> None:
    for change in CHANGES:
        line.sql(change.format(columns=all_columns(), rows=ROWS))
        outcomes = line.tick()
        assert not [o.error for o in outcomes if o.error is not None]
        check()


def test_every_type_is_carried_exactly(berlin: Line, path: str) -> None:
    query = f"SELECT i, {all_columns()} FROM t"
    berlin.create("st", query, mode="DIFFERENTIAL")
    berlin.check("st", "FULL")
    columns = ["i", *(name(t) for t in TYPES)]
    same_text(berlin, "st", query, columns)

    def check() -> None:
        berlin.check("st")
        same_text(berlin, "st", query, columns)

    through_changes(berlin, check)
    # A new load of the same content changes no row: what is stored and what is read have one form.
    berlin.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true")
    (outcome,) = berlin.tick()
    assert (outcome.inserted, outcome.deleted) == (0, 0)


def test_every_type_with_a_canonical_text_is_a_key(berlin: Line, path: str) -> None:
    keys = [t for t in TYPES if t.is_key]
    for type_ in keys:
        column = name(type_)
        berlin.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')",
            f"by_{type_.name}",
            f"SELECT {column}, count(*) AS n, sum(i) AS s, min(i) AS lo, max(i) AS hi FROM t GROUP BY {column}",
        )
    berlin.tick()
    berlin.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")

    def check() -> None:
        for type_ in keys:
            berlin.check(f"by_{type_.name}")

    through_changes(berlin, check)


def test_groups_by_a_key_whose_text_does_not_decide_equality_are_replaced_in_the_table(berlin: Line) -> None:
    odd = [t for t in TYPES if t.is_key is False]
    assert {"jsonb", "interval"} <= {t.name for t in odd}
    for type_ in odd:
        query = f"SELECT {name(type_)}, count(*) AS n FROM t GROUP BY {name(type_)}"
        berlin.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", f"by_{type_.name}", query)
    berlin.tick()
    berlin.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")

    def check() -> None:
        for type_ in odd:
            berlin.check(f"by_{type_.name}")

    through_changes(berlin, check)


def test_every_type_is_folded(berlin: Line, path: str) -> None:
    folded = [t for t in TYPES if t.folds]
    for type_ in folded:
        calls = ", ".join(f"{f}({name(type_)}) AS {f}" for f in type_.folds)
        query = f"SELECT g, count({name(type_)}) AS n, {calls} FROM t GROUP BY g"
        berlin.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", f"of_{type_.name}", query)
    berlin.tick()
    berlin.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")

    def check() -> None:
        for type_ in folded:
            berlin.check(f"of_{type_.name}")

    through_changes(berlin, check)


# -- sums and the digits that they show


def test_a_sum_has_the_digits_of_the_value_that_has_most(line: Line, path: str) -> None:
    line.sql(
        "CREATE TABLE t (id int PRIMARY KEY, g int, v numeric(10,2), w numeric(12,4)); "
        "INSERT INTO t VALUES (1, 1, 0, 2.5), (2, 1, 1, 2.5), (3, 2, 0, 7), (4, 3, NULL, NULL)"
    )
    query = (
        "SELECT g, sum(CASE WHEN v > 0 THEN w ELSE 0 END) AS s, avg(CASE WHEN v > 0 THEN w * 1.5 ELSE v END) AS a, "
        "100.0 * sum(CASE WHEN v > 0 THEN w WHEN v < 0 THEN v ELSE 0 END) / (1 + sum(COALESCE(w, 1))) AS share, "
        "sum(CASE WHEN v > 0 THEN w ELSE 0 END) FILTER (WHERE id > 2) AS late FROM t GROUP BY g"
    )
    columns = ("g", "s", "a", "share", "late")
    line.create("st", query, mode="DIFFERENTIAL")
    same_text(line, "st", query, columns)
    ((tree,),) = line.sql("SELECT plan -> 'words' FROM pgtrickle.pgt_stream_tables")
    assert not [node for node in tree if "reads each" in node or "read again" in node]
    for change in (
        "INSERT INTO t VALUES (5, 2, 3, 1.25), (6, 3, -1, 3)",
        "DELETE FROM t WHERE id IN (2, 5)",
        "UPDATE t SET v = 1, w = 0 WHERE id = 1",
        "UPDATE t SET v = 0 WHERE id = 1",
        "UPDATE t SET v = -v, w = w + 0.0001",
        "DELETE FROM t WHERE g = 3",
    ):
        line.sql(change)
        line.tick()
        line.check("st")
        same_text(line, "st", query, columns)
