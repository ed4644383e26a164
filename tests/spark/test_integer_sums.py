"""Sums of numerics that Spark computes as sums of integers: PostgreSQL's results up to the limits of both."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from typing import Any

import pytest

from pgtrickle.pipeline.expressions.nodes import Reference
from pgtrickle.pipeline.expressions.types import NUMERIC, PgType
from pgtrickle.pipeline.expressions.unscaled import Unscaled, unscaled
from tests.conftest import Database
from tests.spark.relational import Both

TABLE = """
CREATE TABLE m (k int, kind text, price numeric(15,2), share numeric(15,2), rate numeric(4,4), whole numeric(12,0),
                wide numeric(20,4), n int, b bigint)
"""
# Expressions of a SELECT, and its other clauses.
QUERIES = (
    ("k, sum(price), sum(share), sum(rate), sum(whole), sum(wide), sum(price * n), sum(n * rate)", "FROM m GROUP BY k"),
    ("sum(price * (1 - share)), sum(price * (1 - share) * (1 + rate)), avg(price), avg(price * rate)", "FROM m"),
    ("k, sum(price * share), sum(price * share * rate), sum(wide * n), sum(b * rate)", "FROM m WHERE k < 3 GROUP BY k"),
    ("k, sum(CASE WHEN kind LIKE 'a%' THEN price * (1 - rate) ELSE 0 END)", "FROM m GROUP BY k"),
    ("k, sum(CASE kind WHEN 'b' THEN price END), sum(CASE WHEN n > 0 THEN price ELSE NULL END)", "FROM m GROUP BY k"),
    ("k, sum(price) FILTER (WHERE kind = 'a'), sum(price * share) FILTER (WHERE n > 0)", "FROM m GROUP BY k"),
    ("k, sum(-price + rate), sum(price - share), sum(DISTINCT price)", "FROM m GROUP BY k"),
    (
        "sum(total), sum(total * 0.25)",
        "FROM (SELECT k, sum(price * rate) AS total FROM m GROUP BY kind, k) q GROUP BY k",
    ),
    ("k, sum(price) OVER (PARTITION BY k), sum(price * rate) OVER ()", "FROM m"),
    ("sum(price), sum(price * share)", "FROM m WHERE k > 1000"),
    ("sum(price::numeric(17,4)), sum(price::numeric(15,1)), sum((n % 1000)::numeric(12,2)), sum(b + price)", "FROM m"),
)


def _rows(seed: int) -> list[tuple[Any, ...]]:
    """Among them NULLs and the largest values of each type, whose products exceed a bigint."""
    chance = random.Random(seed)

    def some(value: Any) -> Any:
        return None if chance.random() < 0.15 else value

    def number(digits: int, scale: int) -> Decimal:
        most = 10 ** chance.choice((1, digits // 2, digits)) - 1
        return Decimal(chance.choice((most, -most, 0, chance.randint(-most, most)))).scaleb(-scale)

    return [
        (
            *(chance.randint(0, 4), some(chance.choice("abc"))),
            *(some(number(15, 2)), some(number(15, 2)), some(number(4, 4)), some(number(12, 0)), some(number(20, 4))),
            *(some(chance.choice((1, -7, 2**31 - 1, -(2**31)))), some(chance.choice((3, 2**62, 1 - 2**63)))),
        )
        for _ in range(300)
    ]


@pytest.mark.parametrize("seed", range(3))
def test_sums_are_those_of_postgresql(database: Database, session: Any, seed: int) -> None:
    connection = database.connect()
    connection.execute(TABLE)
    with connection.cursor().copy("COPY m FROM STDIN") as copy:
        for row in _rows(seed):
            copy.write_row(row)
    both = Both(connection, session, native=True)
    for listed, rest in QUERIES:
        expressions = re.split(r", (?=sum|avg)", listed)
        both.check(f"SELECT {', '.join(f'{e} AS c{i}' for i, e in enumerate(expressions))} {rest}")


def test_integers_of_decimals_are_exact(session: Any) -> None:
    """For each number of digits after the point: the largest decimals, and those beside powers of ten and two."""
    from pyspark.sql import functions as f

    for scale in range(16):
        integers = [s * (base**e + d) for base in (2, 10) for e in range(50) for d in (-1, 0, 1) for s in (-1, 1)]
        integers = sorted({i for i in integers if abs(i) < 10**15} | {10**15 - 1, 1 - 10**15})
        values = [(Decimal(i).scaleb(-scale),) for i in integers]
        rows = session.createDataFrame(values, f"c decimal(15,{scale})")
        made = unscaled(f, Reference("c", PgType("numeric", 15 - scale, scale), native=True))
        assert isinstance(made, Unscaled)
        assert [row[0] for row in rows.select(made.column).collect()] == integers


@pytest.mark.parametrize("type_", [PgType("numeric", 14, 2), PgType("float8"), NUMERIC])
def test_other_columns_stay_as_they_are(type_: PgType) -> None:
    from pyspark.sql import functions as f

    assert unscaled(f, Reference("c", type_, native=True)) is None
