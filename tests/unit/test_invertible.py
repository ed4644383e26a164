"""Groups below other operators: which are undone by subtraction, and what their change then reads."""

from __future__ import annotations

import pytest

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import general
from pgtrickle.pipeline.differentiate.invertible import invertible_groups
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Block, from_items
from tests.golden.shop import plan_of

SALE = {1: ChangedSource(1, Window(Cut(1, 1, ()), Cut(2, 2, ())), 4)}
WHOLE = '"__pgt_sw0w"'


def groups_of(columns: str, keys: str, *, source: str = "shop.sale", having: str = "") -> Block:
    plan = plan_of(
        f"SELECT c.id FROM (shop.customer c JOIN ( SELECT {columns} FROM {source} GROUP BY {keys}{having}) q ON (true))"
    )
    assert isinstance(plan, Block)
    found = from_items(plan)[1].node
    assert isinstance(found, Block)
    return found


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ("sale.note, count(*) AS n", "sale.note"),
        ("sale.note, sum(sale.qty) AS s, avg(sale.price) AS a", "sale.note"),
        ("sale.id, sale.at, (sum((sale.price * 1.5)) / (count(sale.tags))::numeric) AS s", "sale.id, sale.at"),
        ("sale.price, count(sale.tags) FILTER (WHERE sale.ok) AS n", "sale.price"),
    ],
)
def test_counts_and_exact_sums_are_undone(columns: str, keys: str) -> None:
    assert invertible_groups(groups_of(columns, keys)) is not None


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ("sale.note, max(sale.qty) AS m", "sale.note"),
        ("sale.note, count(DISTINCT sale.qty) AS n", "sale.note"),
        ("sale.note, sum((sale.price / 3.0)) AS s", "sale.note"),
        ("sale.note, sum(CASE WHEN sale.ok THEN sale.price ELSE (0)::numeric END) AS s", "sale.note"),
        ("sale.note, sum((sale.qty)::double precision) AS s", "sale.note"),
        ("(sale.qty + 1) AS k, count(*) AS n", "(sale.qty + 1)"),
        ("sale.tags, count(*) AS n", "sale.tags"),
        ("sale.note, count(*) AS n, row_number() OVER (ORDER BY sale.note) AS r", "sale.note"),
    ],
)
def test_others_are_evaluated_as_they_were(columns: str, keys: str) -> None:
    assert invertible_groups(groups_of(columns, keys)) is None


def test_touched_groups_are_read_once() -> None:
    into = general.new_statement(SALE)
    new, old = general.delta(
        into, groups_of("sale.note, sum(sale.qty) AS s", "sale.note", having=" HAVING (sum(qty) > 3)")
    )
    assert '"__pgt_g".s0_1 AS "s", 1 AS' in new
    assert '"__pgt_g".s0_0 AS "s", -1 AS' in old
    assert all('"__pgt_g".n_' in t and "> 3" in t for t in (new, old))
    assert WHOLE not in into.with_clause()


def test_touched_groups_are_taken_from_all_of_them_where_those_are_needed() -> None:
    plan = plan_of(
        "WITH r AS ( SELECT sale.note AS k, sum(sale.qty) AS s FROM shop.sale GROUP BY sale.note) "
        "SELECT r.k, r.s FROM r WHERE (r.s = ( SELECT max(r_1.s) AS max FROM r r_1))"
    )
    assert isinstance(plan, Block)
    into = general.new_statement(SALE)
    found = general.delta(into, plan)
    clause = into.with_clause()
    assert clause.startswith(f"WITH {WHOLE} AS MATERIALIZED (SELECT sale.note AS ")
    assert clause.count("GROUP BY sale.note") == 1
    assert not any("GROUP BY sale.note" in term for term in found)
