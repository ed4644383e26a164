"""What EXISTS selects is not read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgtrickle.pipeline.parse.exists import drop_output_columns
from pgtrickle.pipeline.plan.nodes import Block, FromItem, OutputColumn, Scan, from_items, subqueries
from tests.golden.shop import plan_of

SALE = "SELECT s.id FROM shop.sale s WHERE (EXISTS ( SELECT {} FROM shop.customer c {}))"


def asked(columns: str, rest: str = "WHERE (c.id = s.customer_id)") -> Block:
    plan = plan_of(SALE.format(columns, rest))
    assert isinstance(plan, Block)
    assert plan.where is not None
    (sub,) = subqueries(plan.where)
    assert isinstance(sub.node, Block)
    return sub.node


def keyed(node: Block) -> Block:
    """The same over a table with a key, which is what lets columns go."""
    (part,) = from_items(node)
    assert isinstance(part.node, Scan)
    relation = replace(part.node.relation, key=(1,))
    return replace(node, trees=(replace(part, node=replace(part.node, relation=relation)),))


def exposed(node: Block) -> tuple[str, ...]:
    (part,) = from_items(node)
    assert isinstance(part, FromItem)
    assert isinstance(part.node, Scan)
    return tuple(n for _, n in part.node.exposes)


@pytest.mark.parametrize("columns", ["c.id, c.name, c.region", "1", "'x'", ""])
def test_columns_and_literals_are_left_out(columns: str) -> None:
    assert asked(columns).columns == (OutputColumn("one", ("1",)),)


@pytest.mark.parametrize("columns", ["unnest(ARRAY[c.id]) AS u", "(c.id + 1) AS n", "count(*) AS n"])
def test_what_might_make_rows_stays(columns: str) -> None:
    assert asked(columns).columns != (OutputColumn("one", ("1",)),)


def test_limit_stays() -> None:
    assert asked("c.id", "WHERE (c.id = s.customer_id) LIMIT 0").columns != (OutputColumn("one", ("1",)),)


def test_columns_that_conditions_name_and_the_key_are_kept() -> None:
    node = keyed(asked("c.id, c.name, c.region", "WHERE (c.region = s.note)"))
    assert exposed(node) == ("id", "name", "region")
    bare = drop_output_columns(node)
    assert isinstance(bare, Block)
    assert exposed(bare) == ("id", "region")


def test_columns_that_a_subquery_inside_names_are_kept() -> None:
    inner = "(EXISTS ( SELECT 1 FROM shop.sale o WHERE (o.note = c.name)))"
    bare = drop_output_columns(keyed(asked("c.id, c.region", f"WHERE {inner}")))
    assert isinstance(bare, Block)
    assert exposed(bare) == ("id", "name")


def test_table_without_a_key_keeps_all_columns() -> None:
    assert exposed(asked("c.id, c.name")) == ("id", "name", "region")
