"""Numbers that decimal(38,18) does not hold, and sums that it does not: exact, and from the changes alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from pgtrickle.pipeline.templates.template import ADDED_FROM
from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

pytestmark = pytest.mark.spark

NEAR = 10**18
QUERIES = {
    "sums": "SELECT g, count(*) AS n, count(b) AS bs, sum(b) AS b, avg(b) AS a, sum(u) AS u, sum(d) AS d, avg(d) AS e, "
    "sum(m) AS m, sum(p) AS p FROM t GROUP BY g",
    "extremes": "SELECT g, min(u) AS u, max(u) AS v, min(d) AS d, max(d) AS e, min(b) AS b, max(m) AS m, max(p) AS p "
    "FROM t GROUP BY g",
    "both": "SELECT g, sum(u) AS s, min(u) AS l, max(u) FILTER (WHERE b > 0) AS h FROM t GROUP BY g HAVING sum(b) <> 7",
    "again": "SELECT g, sum(b) AS s, variance(b) AS v, stddev_pop(u) AS p, sum(DISTINCT u) AS d, avg(u) AS a, "
    "max(DISTINCT u) AS m FROM t GROUP BY g",
    "total": "SELECT sum(b) AS b, sum(u) AS u, min(u) AS l, max(u) AS h, avg(d) AS a, count(u) AS n FROM t",
    "unequal": "SELECT DISTINCT u, d FROM t",
    "joined": "SELECT t.g, o.k, sum(t.b::numeric * o.f) AS b, sum(t.u + o.f) AS u, max(t.u) AS h, min(t.d) AS l "
    "FROM t JOIN o ON o.g = t.g GROUP BY t.g, o.k",
    "first": "SELECT g, sum(u) AS s, max(u) AS h FROM t GROUP BY g ORDER BY sum(u) DESC NULLS LAST, g LIMIT 3",
    "first_rows": "SELECT id, u, d FROM t ORDER BY u DESC NULLS LAST, id LIMIT 5",
    "below": "SELECT min(q.s) AS l, max(q.s) AS h, sum(q.s) AS s FROM (SELECT g, stddev_pop(b % 2) / 7 AS s FROM t "
    "GROUP BY g) AS q",
}
# 0 is what Spark may be given of a number that does not fit; 1 fits.
PLAIN = ["NULL", "0", "1", "-1", "0.5"]
FINE = ["0." + "0" * 29 + "1", "-0." + "1" * 40, "1" + "0" * 25, "-721312493602961829630", "9" * 45 + "." + "9" * 35]
FINE += ["9" * 20, "-" + "9" * 20, "123456789012345678901.5"]
NO_NUMBERS = ["'NaN'", "'Infinity'", "'-Infinity'"]


@pytest.fixture(params=["arrays", "copy"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How delta rows are read and deltas applied: as rows and array parameters, or by COPY both ways."""
    if request.param == "copy":
        monkeypatch.setattr("pgtrickle.refresh.deltas.SMALL_ROWS", 0)
    return str(request.param)


def rows(random: Random, first: int, count: int, values: Sequence[str]) -> str:
    """t (id, g, b, u, d, m, p): a group that may be NULL, an int8, numerics without and with a declared size."""
    texts = []
    for id_ in range(first, first + count):
        group = random.choice(["NULL", "1", "2", "3", "4"])
        big = random.choice(["NULL", "0", str(NEAR - id_), str(-NEAR + id_), str(2**63 - 1), str(-(2**63)), str(NEAR)])
        u, p = random.choice(values), random.choice(values)
        d, m = random.choice(PLAIN + FINE), random.choice([*PLAIN, "'NaN'" if "'NaN'" in values else "2.25"])
        texts.append(f"({id_}, {group}, {big}, {u}, {d}, {m}, {p if p[-1:] != chr(39) or p == NO_NUMBERS[0] else 1})")
    return ", ".join(texts)


def made(line: Line, values: Sequence[str], count: int = 60) -> Random:
    random = Random(7)
    line.sql(
        "CREATE TABLE t (id int PRIMARY KEY, g int, b bigint, u numeric, d numeric(90, 40), m numeric(10, 2), "
        "p numeric(70, 15)); CREATE TABLE o (g int, k int, f bigint); CREATE INDEX ON t (g); "
        "INSERT INTO o VALUES (1, 1, 3), (1, 2, -7), (2, 1, 1000), (3, NULL, 1), (9, 9, 9); "
        f"INSERT INTO t VALUES {rows(random, 0, count, values)}"
    )
    return random


def through(line: Line, random: Random, values: Sequence[str], count: int, check: Callable[[], None]) -> None:
    """Rows that come, change and go, some within one window; what the other table brings; groups that end."""
    least = f"(SELECT id FROM t WHERE u = (SELECT {random.choice(('min', 'max'))}(u) FROM t))"
    for number, change in enumerate(
        (
            f"INSERT INTO t VALUES {rows(random, 1000, count, values)}",
            f"UPDATE t SET b = b / -2, u = {random.choice(values)} WHERE id % 3 = 0",
            f"DELETE FROM t WHERE id IN {least}",
            f"INSERT INTO t VALUES {rows(random, 5000, count, values)}; DELETE FROM t WHERE id >= 5000 AND id % 5 < 4",
            "UPDATE o SET f = f + 1; INSERT INTO o VALUES (4, 4, 1000000000); UPDATE t SET g = 4 WHERE id % 7 = 0",
            "DELETE FROM t WHERE g = 1 OR g IS NULL",
            f"UPDATE t SET u = NULL, d = NULL; INSERT INTO t VALUES {rows(random, 9000, 3, values)}",
            "DELETE FROM t",
            f"INSERT INTO t VALUES {rows(random, 20000, count, values)}",
        )
    ):
        line.sql(change)
        outcomes = line.tick()
        assert not [(number, o.error) for o in outcomes if o.error is not None]
        check()


def exact(line: Line, name: str) -> None:
    """Where the columns that it reads have not changed it has nothing to do."""
    assert line.last(name)[0] in ("DIFFERENTIAL", "NO_DATA"), line.last(name)
    line.check(name, line.last(name)[0])


@pytest.mark.parametrize("kind", ["finite", "any"])
def test_what_does_not_fit_is_exact_from_its_changes(line: Line, path: str, kind: str) -> None:
    values = PLAIN + FINE + (NO_NUMBERS if kind == "any" else [])
    random = made(line, values)
    for name, query in QUERIES.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", name, query)
    line.tick()
    line.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")

    def check() -> None:
        for name in QUERIES:
            exact(line, name)

    through(line, random, values, 60, check)


def test_many_changes_are_exact(line: Line) -> None:
    """Above what is added up by PostgreSQL before it travels; the sums that travel are the larger for it."""
    random = made(line, PLAIN + FINE, 3 * ADDED_FROM)
    for name in ("sums", "both", "total", "joined"):
        line.create(name, QUERIES[name], mode="DIFFERENTIAL")

    def check() -> None:
        for name in ("sums", "both", "total", "joined"):
            exact(line, name)

    through(line, random, PLAIN + FINE, 3 * ADDED_FROM, check)


@pytest.mark.parametrize("count", [11, 150, 2000])
def test_int8_near_their_end_are_added(line: Line, count: int) -> None:
    line.sql(
        "CREATE TABLE t (id int, g int, b bigint); "
        f"INSERT INTO t SELECT i, i % 2, {2**63 - 1} - i FROM generate_series(1, {count}) AS i"
    )
    line.create("st", "SELECT g, sum(b) AS s, avg(b) AS a, variance(b) AS v FROM t GROUP BY g", mode="DIFFERENTIAL")
    line.create("total", "SELECT sum(b) AS s, min(b) AS l, count(*) AS n FROM t", mode="DIFFERENTIAL")
    for change in (
        f"INSERT INTO t SELECT i, i % 3, {-(2**63)} + i FROM generate_series(1, {count}) AS i",
        "UPDATE t SET b = b + sign(-b)::int8",
        "DELETE FROM t WHERE b < 0",
    ):
        line.sql(change)
        line.tick()
        line.check("st")
        line.check("total")


UNFIT = {
    "not_a_number": ("numeric(10,2)", "'NaN'"),
    "infinite": ("numeric", "'-Infinity'"),
    "thirty_decimals": ("numeric", "0." + "0" * 29 + "1"),
    "too_many_digits": ("numeric", "1" + "0" * 25),
    "digits_that_wrap_around": ("numeric", "721312493602961829630"),
    "sum_of_39_digits": ("numeric", "9" * 20),
    "declared_too_wide": ("numeric(38,0)", "9" * 38),
}


@pytest.mark.parametrize("mode", ["AUTO", "DIFFERENTIAL"])
@pytest.mark.parametrize("case", UNFIT)
def test_value_that_does_not_fit_changes_no_mode(line: Line, path: str, case: str, mode: str) -> None:
    type_, literal = UNFIT[case]
    line.sql(f"CREATE TABLE t (g int, v {type_}); INSERT INTO t VALUES (1, 1), (2, 2)")
    line.create("st", "SELECT g, sum(v) AS s, max(v) AS m, min(v) AS l FROM t GROUP BY g", mode=mode)
    for change in (
        f"INSERT INTO t VALUES (1, {literal}), (1, {literal})",
        "INSERT INTO t VALUES (1, 3), (2, 3)",
        f"DELETE FROM t WHERE ctid = (SELECT min(ctid) FROM t WHERE v = {literal})",
        f"DELETE FROM t WHERE v = {literal}",
        "DELETE FROM t WHERE g = 1",
    ):
        line.sql(change)
        line.tick()
        line.check("st")


def test_only_the_groups_of_what_is_no_number_are_read_again(line: Line) -> None:
    """The others are added to: their rows are not there to be read any more."""
    line.sql(
        "CREATE TABLE t (g int, v numeric); CREATE INDEX ON t (g); "
        "INSERT INTO t SELECT i % 3, i FROM generate_series(1, 30) AS i"
    )
    line.create("st", "SELECT g, sum(v) AS s, count(*) AS n FROM t GROUP BY g", mode="DIFFERENTIAL")
    line.sql("UPDATE pgtrickle_changes.state_1 SET m0_s = 1000")
    line.sql("INSERT INTO t VALUES (0, 'NaN'), (1, 1e30), (2, 1)")
    line.tick()
    assert [tuple(map(str, row)) for row in line.rows("st")] == [
        ("0", "NaN", "11"),
        ("1", str(10**30 + 1000), "11"),
        ("2", "1001", "11"),
    ]


def test_a_mirrored_table_brings_what_does_not_fit(
    make_installed: Callable[[], Database], make_database: Callable[[], Database], make_line: Callable[..., Line]
) -> None:
    home, other = make_installed(), make_installed()
    other.sql(
        "CREATE TABLE t (id int PRIMARY KEY, g int, b bigint, u numeric(80, 40)); INSERT INTO t SELECT i, i % 3, "
        f"{NEAR} + i, i::numeric / 7 FROM generate_series(1, 200) AS i"
    )
    fleet = Elsewhere(home, make_line(home), [other], make_database)
    query = "SELECT g, sum(b) AS b, sum(u) AS u, min(u) AS l, max(u) AS h FROM {0}.public.t GROUP BY g"
    fleet.create("st", query, mode="DIFFERENTIAL")
    fleet.settle()
    for change in (
        f"UPDATE t SET b = {2**63 - 1} - id, u = u / {10**30}",
        "UPDATE t SET u = 'NaN' WHERE id IN (3, 4, 7)",
        "DELETE FROM t WHERE id < 10; INSERT INTO t VALUES (1, 9, 1, 1e-30)",
    ):
        other.sql(change)
        fleet.settle()
        assert fleet.line.last("st")[:2] == ("DIFFERENTIAL", "COMPLETED")
        assert repr(fleet.line.rows("st")) == repr(fleet.expected("st"))
