"""The law against PostgreSQL: the generator's plans as SQL through the whole line, after every round of changes.

Tables have no keys, nullable columns and duplicate rows. The interpreter of the property tests is compared with
PostgreSQL on the way, so that what holds there means something here.
"""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from psycopg import sql

from pgtrickle.errors import PgtrickleError
from pgtrickle.pipeline.plan.nodes import Aggregate
from tests.line import Line
from tests.property.generator import (
    COLUMNS,
    DDL,
    TABLES,
    Case,
    Generator,
    Tables,
    random_changes,
    random_content,
    sql_of,
)
from tests.property.interpreter import Bag, Row, aggregated, bag, reader

QUERIES, ROUNDS = 14, 4


def random_case(seed: int) -> Case:
    return Generator(Random(seed)).case()


def insert(relid: int, row: Row) -> sql.Composed:
    values = sql.SQL(", ").join(sql.Literal(v) for v in row)
    return sql.SQL("INSERT INTO {} VALUES ({})").format(sql.Identifier(TABLES[relid - 1]), values)


def one_of(relid: int, row: Row) -> sql.Composed:
    """The place of one copy of this row."""
    tests = [
        sql.SQL("{} IS NOT DISTINCT FROM {}").format(sql.Identifier(name), sql.Literal(value))
        for (name, _), value in zip(COLUMNS, row, strict=True)
    ]
    return sql.SQL("ctid = (SELECT ctid FROM {} WHERE {} LIMIT 1)").format(
        sql.Identifier(TABLES[relid - 1]), sql.SQL(" AND ").join(tests)
    )


def statement(what: str, relid: int, row: Row, new: Row | None) -> sql.Composed:
    table = sql.Identifier(TABLES[relid - 1])
    if what == "insert":
        return insert(relid, row)
    if new is None:
        return sql.SQL("DELETE FROM {} WHERE {}").format(table, one_of(relid, row))
    sets = [
        sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(v))
        for (name, _), v in zip(COLUMNS, new, strict=True)
    ]
    return sql.SQL("UPDATE {} SET {} WHERE {}").format(table, sql.SQL(", ").join(sets), one_of(relid, row))


def comparable(rows: Bag) -> Bag:
    """Numbers as rounded fractions: an average has as many digits as PostgreSQL likes."""
    result: Bag = Counter()
    for row, weight in rows.items():
        result[tuple(_number(v) for v in row)] += weight
    return result


def _number(value: Any) -> Any:
    is_number = isinstance(value, int | Decimal | Fraction) and not isinstance(value, bool)
    return round(Fraction(value), 10) if is_number else value


def interpreted(case: Case, tables: Tables) -> Bag:
    if isinstance(case.plan, Aggregate):
        return comparable(aggregated(case.plan, reader(tables), case.meaning))
    return comparable(bag(case.plan, reader(tables), case.meaning))


@pytest.mark.soak
@pytest.mark.slow
@pytest.mark.parametrize(("first_seed", "path"), [(1000, "arrays"), (2000, "staged")])
def test_random_queries_stay_exact_through_random_changes(
    line: Line, monkeypatch: pytest.MonkeyPatch, first_seed: int, path: str
) -> None:
    if path == "staged":
        monkeypatch.setattr("pgtrickle.refresh.deltas.SMALL_ROWS", 0)
    random = Random(first_seed)
    cases = {f"q{seed}": random_case(seed) for seed in range(first_seed, first_seed + QUERIES)}
    content = random_content(random, most=8)
    line.sql(DDL)
    for relid, rows in content.items():
        for row in rows.elements():
            line.conn.execute(insert(relid, row))
    for name, case in cases.items():
        line.sql("SELECT pgtrickle.create_stream_table(%s, %s, '1s', 'DIFFERENTIAL')", name, sql_of(case.plan))
    line.tick()
    for name in cases:
        line.check(name, "FULL")
    line.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET schedule = 'calculated'")
    for _ in range(ROUNDS):
        content, done = random_changes(random, content, most=6)
        with line.conn.transaction():
            for change in done:
                line.conn.execute(statement(*change))
        failed: list[PgtrickleError] = [o.error for o in line.tick() if o.error is not None]
        assert not failed
        for name, case in cases.items():
            line.equal(name)
            assert line.last(name)[0] in ("DIFFERENTIAL", "NO_DATA") or line.refreshes(name) == 1, line.last(name)
            assert comparable(Counter(line.rows(name))) == interpreted(case, content), sql_of(case.plan)
