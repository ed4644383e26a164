"""Which rows a change that a query is not linear in touches: too many may pass, never too few."""

from __future__ import annotations

import re

import pytest

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import general
from pgtrickle.pipeline.differentiate.affected_rows import (
    affected_rows_of_item,
    affected_rows_of_subquery,
    affected_rows_of_value,
    is_uncorrelated,
)
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.differentiate.states import ALL_NEW, NEW, OLD, Statement, View
from pgtrickle.pipeline.plan.names import nested_from_items
from pgtrickle.pipeline.plan.nodes import Block, FromItem, block_texts, from_items, subqueries
from tests.golden.shop import plan_of

WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
CUSTOMER = {2: ChangedSource(2, WINDOW, 4)}


def block(text: str) -> Block:
    plan = plan_of(text)
    assert isinstance(plan, Block)
    return plan


def named(found: tuple[FromItem, ...], alias: str) -> FromItem:
    (part,) = (p for p in found if p.alias == alias)
    return part


def by_part(source: str, alias: str = "c") -> str | None:
    """The condition for a change of the part of this alias."""
    plan = block(f"SELECT s.id FROM {source}")
    return shown(affected_rows_of_item(changed(), plan, named(from_items(plan), alias), ALL_NEW))


def by_sub(query: str, alias: str = "c") -> str | None:
    plan = block(query)
    (sub,) = (s for text in block_texts(plan) for s in subqueries(text))
    return shown(affected_rows_of_subquery(changed(), plan, sub, named(nested_from_items(sub.node), alias), ALL_NEW))


def changed() -> Statement:
    return general.new_statement(CUSTOMER)


def shown(sql: str | None) -> str | None:
    """Tables by their names, changes as d."""
    if sql is None:
        return None
    sql = re.sub(r'\(SELECT \* FROM "__pgt_\w+"\)', "d", sql)
    return re.sub(r'\(SELECT t\.[^()]* FROM "shop"\."(\w+)" AS t\)', r"\1", sql)


ON_ID = "ON ((c.id = s.customer_id))"


def test_part_touches_the_rows_that_its_join_connects_it_with() -> None:
    expected = "EXISTS (SELECT FROM d AS c WHERE (c.id = s.customer_id))"
    assert by_part(f"(shop.sale s LEFT JOIN shop.customer c {ON_ID})") == expected
    assert by_part(f"(shop.customer c RIGHT JOIN shop.sale s {ON_ID})") == expected


def test_conditions_of_a_join_are_kept_one_by_one() -> None:
    condition = by_part("(shop.sale s LEFT JOIN shop.customer c ON (((c.id = s.customer_id) AND (s.qty > 1))))")
    assert condition == "EXISTS (SELECT FROM d AS c WHERE ((c.id = s.customer_id)) AND ((s.qty > 1)))"


def test_using_is_an_equality_of_both_sides() -> None:
    condition = by_part("(shop.sale s LEFT JOIN shop.customer c USING (id))")
    assert condition == 'EXISTS (SELECT FROM d AS c WHERE ((s."id" = c."id")))'


def test_using_over_a_join_means_the_item_that_its_column_is_of() -> None:
    joins = "((shop.sale s LEFT JOIN shop.sale u USING (id)) LEFT JOIN shop.customer c USING (id))"
    assert by_part(joins) == 'EXISTS (SELECT FROM d AS c WHERE ((s."id" = c."id")))'
    assert by_part(joins.replace("s LEFT", "s RIGHT")) == 'EXISTS (SELECT FROM d AS c WHERE ((u."id" = c."id")))'
    assert by_part(joins.replace("s LEFT", "s FULL")) is None


def test_any_row_may_be_touched_through_a_full_join() -> None:
    assert by_part(f"(shop.sale s FULL JOIN shop.customer c {ON_ID})") is None


NESTED = (
    "(shop.sale s LEFT JOIN (shop.sale z LEFT JOIN shop.customer c ON ((c.id = z.customer_id))) "
    "ON (((z.id = s.id) AND (c.name = s.note))))"
)


def test_condition_on_the_nullable_side_of_a_nested_outer_join_is_left_out() -> None:
    """The row of z may have been joined with NULL in place of the change, and connected by that, or not."""
    condition = by_part(NESTED)
    assert condition is not None
    assert "(z.id = s.id)" in condition
    assert "c.name" not in condition


def test_change_meets_the_rows_of_the_other_side_by_an_inner_join() -> None:
    condition = by_part(NESTED)
    assert condition is not None
    assert "(sale AS z JOIN d AS c ON (c.id = z.customer_id))" in condition


def test_condition_on_the_preserved_side_of_a_nested_outer_join_is_kept() -> None:
    condition = by_part(NESTED.replace("shop.sale z LEFT", "shop.sale z RIGHT"))
    assert condition is not None
    assert "(c.name = s.note)" in condition
    assert "RIGHT JOIN" in condition


def test_nested_full_join_says_nothing_of_the_side_that_changed() -> None:
    condition = by_part(NESTED.replace("shop.sale z LEFT", "shop.sale z FULL"))
    assert condition is not None
    assert "c.name" not in condition
    assert "(z.id = s.id)" in condition


def test_inner_join_below_an_outer_one_keeps_every_condition() -> None:
    condition = by_part(NESTED.replace("shop.sale z LEFT", "shop.sale z"))
    assert condition is not None
    assert "(z.id = s.id)" in condition
    assert "(c.name = s.note)" in condition


def test_lateral_query_touches_rows_by_its_own_condition() -> None:
    condition = by_part(
        "(shop.sale s LEFT JOIN LATERAL ( SELECT c.name FROM shop.customer c WHERE (c.id = s.customer_id)) x "
        "ON (true))",
        "x",
    )
    assert condition == "EXISTS (SELECT FROM d AS c WHERE (c.id = s.customer_id))"


@pytest.mark.parametrize("word", ["EXISTS", "NOT EXISTS"])
def test_exists_touches_rows_by_its_condition(word: str) -> None:
    inner = "SELECT 1 FROM shop.customer c WHERE (c.id = s.customer_id)"
    test = f"(EXISTS ( {inner}))" if word == "EXISTS" else f"(NOT (EXISTS ( {inner})))"
    condition = by_sub(f"SELECT s.id FROM shop.sale s WHERE {test}")
    assert condition == "EXISTS (SELECT FROM d AS c WHERE (c.id = s.customer_id))"


ANSWER = "( SELECT max(c.id) AS max FROM shop.customer c)"


def by_answer(query: str) -> tuple[str, dict[str, str]]:
    """The condition for another answer of the query's first subquery, and what stands in WITH."""
    plan, into = block(query), changed()
    sub = next(s for text in block_texts(plan) for s in subqueries(text) if is_uncorrelated(s))
    old = View(NEW, {p.number: OLD for p in nested_from_items(sub.node)})
    return affected_rows_of_value(into, plan, sub, ALL_NEW, old), into.shared


def test_answer_for_all_rows_touches_those_whose_condition_turns_out_differently() -> None:
    condition, shared = by_answer(f"SELECT s.id FROM shop.sale s WHERE (s.qty > {ANSWER})")
    new, old = (f"SELECT v.v FROM {name} AS v" for name in shared if "__pgt_sv" in name)
    assert condition == (
        f"(({new}) IS DISTINCT FROM ({old})) AND ((s.qty > ( {new} )) IS TRUE) <> ((s.qty > ( {old} )) IS TRUE)"
    )


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT s.id, {ANSWER} AS m FROM shop.sale s",
        f"SELECT s.id FROM shop.sale s WHERE ((s.qty > {ANSWER}) OR (EXISTS ( SELECT 1 FROM shop.customer c "
        "WHERE (c.id = s.id))))",
    ],
)
def test_answer_touches_all_rows_or_none_where_no_condition_tells_more(query: str) -> None:
    condition, _ = by_answer(query)
    assert "IS DISTINCT FROM" in condition
    assert "s." not in condition


def test_answer_over_groups_is_evaluated_once_and_undone_by_their_change() -> None:
    groups = "( SELECT c.region, count(*) AS n FROM shop.customer c GROUP BY c.region)"
    _, shared = by_answer(f"SELECT s.id FROM shop.sale s WHERE (s.qty > ( SELECT max(g.n) AS max FROM {groups} g))")
    (kept,) = (name for name in shared if "__pgt_sn" in name)
    new, old = (sql for name, sql in shared.items() if "__pgt_sv" in name)
    assert f"FROM (SELECT * FROM {kept}) AS g" in new
    assert f"FROM {kept} AS q WHERE NOT" in old
    assert "OVER (PARTITION BY" in old


def test_exists_with_more_than_equalities_says_these_by_themselves() -> None:
    inner = "SELECT 1 FROM shop.customer c WHERE ((c.id = s.customer_id) AND (c.name <> s.note))"
    condition = by_sub(f"SELECT s.id FROM shop.sale s WHERE (EXISTS ( {inner}))")
    assert condition == (
        "(s.customer_id) IN (SELECT c.id FROM d AS c) AND "
        "EXISTS (SELECT FROM d AS c WHERE ((c.id = s.customer_id)) AND ((c.name <> s.note)))"
    )


def test_value_that_rows_ask_for_is_looked_up_in_the_old_state_only_where_a_change_has_its_keys() -> None:
    value = (
        "( SELECT max(c.name) AS max FROM shop.customer c WHERE ((c.id = s.customer_id) AND (c.region = 'x'::text)))"
    )
    plan, into = block(f"SELECT s.id FROM shop.sale s WHERE (s.note > {value})"), changed()
    (sub,) = (s for text in block_texts(plan) for s in subqueries(text))
    (part,) = nested_from_items(sub.node)
    old = shown(into.render_subquery(sub, View(NEW, {part.number: OLD})))
    assert str(old).startswith("SELECT CASE WHEN (s.customer_id) IN (SELECT c.id FROM d AS c) THEN (SELECT max(c.name)")
    assert str(old).count(" ELSE (SELECT max(c.name)") == 1
    assert "CASE" not in into.render_subquery(sub, ALL_NEW)


@pytest.mark.parametrize("condition", ["(c.id > s.customer_id)", "((c.id + 1) = s.customer_id)", "(c.id = 5)"])
def test_value_that_rows_do_not_ask_for_by_equality_is_evaluated_as_it_was(condition: str) -> None:
    value = f"( SELECT (max(c.name) || s.note) FROM shop.customer c WHERE {condition})"
    plan, into = block(f"SELECT s.id FROM shop.sale s WHERE (s.note > {value})"), changed()
    (sub,) = (s for text in block_texts(plan) for s in subqueries(text))
    assert "CASE WHEN" not in into.render_subquery(sub, View(NEW, {p.number: OLD for p in nested_from_items(sub.node)}))


IN = "(s.customer_id IN ( SELECT c.id FROM shop.customer c))"


def test_required_in_touches_equal_rows() -> None:
    condition = by_sub(f"SELECT s.id FROM shop.sale s WHERE {IN}")
    assert condition is not None
    assert "(s.customer_id) = (c.id)" in condition
    assert "IS NOT FALSE" not in condition


@pytest.mark.parametrize("where", [f"(NOT {IN})", f"({IN} OR s.ok)", f"({IN} IS NULL)"])
def test_in_that_may_be_unknown_touches_rows_that_may_be_equal(where: str) -> None:
    condition = by_sub(f"SELECT s.id FROM shop.sale s WHERE {where}")
    assert condition is not None
    assert "((s.customer_id) = (c.id)) IS NOT FALSE" in condition


def test_column_of_the_row_is_not_taken_for_one_of_the_change() -> None:
    """PostgreSQL prints columns of a single table without its alias."""
    condition = by_sub("SELECT id FROM shop.customer WHERE (name IN ( SELECT c.region FROM shop.customer c))")
    assert condition is None or "(name) = (c.region)" not in condition


def test_in_over_groups_compares_keys_only() -> None:
    query = "SELECT s.id FROM shop.sale s WHERE (s.qty IN ( SELECT {} FROM shop.customer c GROUP BY c.id))"
    by_key = by_sub(query.format("c.id"))
    assert by_key is not None
    assert "(s.qty) = (c.id)" in by_key
    by_value = by_sub(query.format("max(c.region) AS max"))
    assert by_value is None or "s.qty" not in by_value


def test_change_two_levels_down_is_connected_through_the_middle() -> None:
    condition = by_sub(
        "SELECT s.id FROM shop.sale s WHERE (EXISTS ( SELECT 1 FROM shop.sale z WHERE ((z.id = s.id) AND (EXISTS "
        "( SELECT 1 FROM shop.customer c WHERE (c.id = z.customer_id))))))"
    )
    assert condition is not None
    assert re.match(
        r"EXISTS \(SELECT FROM sale AS z WHERE .*z\.id = s\.id.* AND EXISTS \(SELECT FROM d AS c", condition
    )
