"""Which names a text uses, and what a subquery takes from around it."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.plan.names import (
    aliases,
    aliases_in_text,
    conjuncts,
    nested_from_items,
    outer_aliases,
    qualified,
)
from pgtrickle.pipeline.plan.nodes import Block, Subquery, block_texts, from_items, subqueries
from tests.golden.shop import plan_of


def block(text: str) -> Block:
    plan = plan_of(text)
    assert isinstance(plan, Block)
    return plan


def the_sub(plan: Block) -> Subquery:
    (found,) = (s for text in block_texts(plan) for s in subqueries(text))
    return found


EXISTS = (
    "SELECT s.id FROM shop.sale s WHERE ((s.qty > 1) AND (EXISTS ( SELECT 1 FROM shop.customer c WHERE (c.id = s.id))))"
)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("(s.qty + c.id)", {"s", "c"}),
        ("qty", set()),
        ('("Odd".x = S.y)', {"Odd", "s"}),
        ("shop.price_of(s.id)", {"s"}),  # a function's schema
        ("(s.at)::pg_catalog.date", {"s"}),  # a type's
        ("'a.b'::text", set()),
        ("", set()),
    ],
)
def test_alias_is_the_name_before_a_dot(sql: str, found: set[str]) -> None:
    assert aliases(sql) == found


def test_text_uses_only_what_its_subqueries_take_from_outside() -> None:
    where = block(EXISTS).where
    assert where is not None
    assert aliases_in_text(where) == {"s"}


def test_free_is_what_a_query_names_and_does_not_have() -> None:
    plan = block(EXISTS)
    assert outer_aliases(the_sub(plan).node) == {"s"}
    assert outer_aliases(plan) == frozenset()


def test_lateral_takes_from_the_items_left_of_it() -> None:
    plan = block("SELECT s.id, x.v FROM shop.sale s, LATERAL ( SELECT (s.qty + 1) AS v) x")
    lateral = from_items(plan)[1].node
    assert lateral is not None
    assert outer_aliases(lateral) == {"s"}
    assert outer_aliases(plan) == frozenset()


def test_free_looks_through_every_level() -> None:
    plan = block(
        "SELECT s.id FROM shop.sale s WHERE (EXISTS ( SELECT 1 FROM shop.customer c WHERE (EXISTS ( SELECT 1 "
        "FROM shop.sale z WHERE ((z.id = s.id) AND (z.qty = c.id))))))"
    )
    outer = the_sub(plan).node
    assert isinstance(outer, Block)
    assert outer_aliases(the_sub(outer).node) == {"s", "c"}
    assert outer_aliases(outer) == {"s"}


def test_free_counts_each_branch_of_a_union() -> None:
    plan = block(
        "SELECT s.id FROM shop.sale s WHERE (s.id IN ( SELECT c.id FROM shop.customer c WHERE (c.id = s.qty) "
        "UNION ALL SELECT d.id FROM shop.customer d))"
    )
    assert outer_aliases(the_sub(plan).node) == {"s"}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("((a.x = 1) AND (b.y = 2) AND c.z)", ["(a.x = 1)", "(b.y = 2)", "c.z"]),
        ("((a.x = 1) OR (b.y = 2))", ["(a.x = 1) OR (b.y = 2)"]),
        ("((a.x = 1) AND ((b.y = 2) AND c.z))", ["(a.x = 1)", "((b.y = 2) AND c.z)"]),  # only the outermost
        ("(NOT ((a.x = 1) AND c.z))", ["NOT ((a.x = 1) AND c.z)"]),
        ("true", ["true"]),
    ],
)
def test_conjuncts_are_what_and_joins(sql: str, found: list[str]) -> None:
    assert conjuncts((sql,)) == [(f,) for f in found]


def test_conjunct_keeps_its_subquery() -> None:
    plan = block(EXISTS)
    assert plan.where is not None
    plain, exists = conjuncts(plan.where)
    assert plain == ("(s.qty > 1)",)
    assert subqueries(exists) == (the_sub(plan),)
    assert aliases_in_text(exists) == {"s"}


def test_below_lists_parts_of_subqueries_and_lateral_items() -> None:
    plan = block(
        "SELECT s.id FROM shop.sale s, LATERAL ( SELECT c.id FROM shop.customer c WHERE (c.id = s.id)) x "
        "WHERE (EXISTS ( SELECT 1 FROM shop.customer d))"
    )
    assert [p.alias for p in nested_from_items(plan)] == ["s", "x", "c", "d"]


@pytest.mark.parametrize(
    ("sql", "inside"),
    [
        ("qty", "sale.qty"),
        ("(qty + 1)", "(sale.qty + 1)"),
        ("qty, note", "sale.qty, sale.note"),
        ("(note)::text", "(sale.note)::text"),
        ('(note COLLATE "C")', '(sale.note COLLATE "C")'),
        ("EXTRACT(day FROM at)", "EXTRACT(day FROM sale.at)"),
        ("(at AT TIME ZONE 'UTC'::text)", "(sale.at AT TIME ZONE 'UTC'::text)"),
        ("(at)::timestamp(3) without time zone, qty", "(sale.at)::timestamp(3) without time zone, sale.qty"),
        ("(note)::character varying(9)", "(sale.note)::character varying(9)"),
        ("(note = 'x'::text) IS NOT false", "(sale.note = 'x'::text) IS NOT false"),
        ("(qty)::double precision, zone", None),
        ("CASE WHEN (qty IS NULL) THEN 0 ELSE qty END", "CASE WHEN (sale.qty IS NULL) THEN 0 ELSE sale.qty END"),
        ("unknown_name", None),
    ],
)
def test_columns_of_a_single_item_are_named_with_it_inside_a_subquery(sql: str, inside: str | None) -> None:
    node = block("SELECT id FROM shop.sale WHERE (EXISTS ( SELECT 1 FROM shop.customer c WHERE (c.id = sale.id)))")
    assert qualified(node, sql) == inside


def test_a_column_that_using_merged_is_that_of_both_sides_inside_a_subquery() -> None:
    node = block("SELECT id FROM (shop.sale s FULL JOIN shop.customer c USING (id))")
    assert qualified(node, "id") == 'COALESCE(s."id", c."id")'
    assert qualified(node, "day") is None
    assert qualified(node, "s.id") == "s.id"
