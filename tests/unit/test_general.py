"""The change of any plan: how many terms it has, and which state each of them reads."""

from __future__ import annotations

import pytest

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import general, linear
from pgtrickle.pipeline.differentiate.key_filter import filter_by_keys
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Aggregate, Block, Node, Select, from_items
from tests.golden.shop import plan_of

WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
SALE, CUSTOMER, ODD = ({n: ChangedSource(n, WINDOW, 4)} for n in (1, 2, 3))
LEFT = "SELECT s.id, c.name FROM (shop.sale s LEFT JOIN shop.customer c ON ((c.id = s.customer_id)))"
WAS = " UNION ALL SELECT b."  # what a table had and has no more


def node_of(query: str) -> Node:
    plan = plan_of(query)
    assert not isinstance(plan, Aggregate)
    return plan


def terms(query: str, changed: dict[int, ChangedSource]) -> list[str]:
    return general.delta(general.new_statement(changed), node_of(query))


def signs(found: list[str]) -> list[str]:
    """1 and -1 for terms of that weight, d for those that have the weights of changes."""
    return [next((w for w in ("-1", "1") if f', {w} AS "__pgt_w"' in t), "d") for t in found]


def test_what_has_not_changed_has_no_terms() -> None:
    assert terms(LEFT, ODD) == []


def test_changed_preserved_side_is_one_term_over_its_changes() -> None:
    (term,) = terms(LEFT, SALE)
    assert 's."__pgt_w" AS "__pgt_w"' in term
    assert WAS not in term


def test_changed_other_side_is_touched_rows_with_it_as_it_is_minus_as_it_was() -> None:
    new, old = terms(LEFT, CUSTOMER)
    assert signs([new, old]) == ["1", "-1"]
    assert (WAS in new, WAS in old) == (False, True)
    assert all("WHERE EXISTS (SELECT FROM " in t for t in (new, old))


def test_both_sides_changed_are_three_terms() -> None:
    """The preserved side's changes meet the other side as it was; only then does that one change."""
    first, new, old = terms(LEFT, SALE | CUSTOMER)
    assert signs([first, new, old]) == ["d", "1", "-1"]
    assert [WAS in t for t in (first, new, old)] == [True, False, True]


def test_full_join_is_a_left_join_and_what_has_no_left() -> None:
    full = LEFT.replace("LEFT JOIN", "FULL JOIN")
    first, new, old = terms(full, SALE)
    assert signs([first, new, old]) == ["d", "1", "-1"]
    assert "LEFT JOIN" in first
    assert all("RIGHT JOIN" in t and '(s."id" IS NULL) AND EXISTS (SELECT FROM ' in t for t in (new, old))
    assert signs(terms(full, CUSTOMER)) == ["1", "-1", "d"]
    assert signs(terms(full, SALE | CUSTOMER)) == ["d", "1", "-1", "d", "1", "-1"]


def test_full_joins_over_one_list_are_all_found_by_key() -> None:
    found = terms(
        "SELECT id FROM ((shop.sale s FULL JOIN shop.customer c USING (id)) FULL JOIN shop.customer d USING (id))", SALE
    )
    assert signs(found) == ["d", "1", "-1", "1", "-1"]
    assert not any(" FULL JOIN " in t for t in found)
    assert all('(s."id" IS NULL)' in t and "EXISTS" in t for t in found[1:])
    assert '((s."id" IS NULL)) AND ((c."id" IS NULL))' in found[3]


def test_full_join_without_a_column_that_tells_is_evaluated_as_it_is() -> None:
    found = terms(
        'SELECT a.id FROM (shop."Odd Table" a FULL JOIN shop."Odd Table" b ON ((COALESCE(a.id, 0) = b.id)))', ODD
    )
    assert signs(found) == ["1", "-1", "1", "-1"]
    assert all(" FULL JOIN " in t and "EXISTS" not in t for t in found)


def test_preserved_parts_change_together_as_in_an_inner_join() -> None:
    query = (
        "SELECT s.id FROM ((shop.sale s JOIN shop.customer c ON ((c.id = s.customer_id))) "
        'LEFT JOIN shop."Odd Table" o ON ((o."group" = s.id)))'
    )
    assert len(terms(query, SALE | CUSTOMER)) == 3
    assert len(terms(query, SALE | CUSTOMER | ODD)) == 5


def test_too_many_preserved_parts_change_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(general, "MAX_EXPANDED", 1)
    query = (
        "SELECT s.id FROM ((shop.sale s JOIN shop.customer c ON ((c.id = s.customer_id))) "
        'LEFT JOIN shop."Odd Table" o ON ((o."group" = s.id)))'
    )
    found = terms(query, SALE | CUSTOMER)
    assert len(found) == 2
    assert 'UNION ALL SELECT q."id"' in found[1]  # the first one as it was: what it is minus its change


def test_linear_plan_keeps_its_own_rule() -> None:
    query = LEFT.replace("LEFT JOIN", "JOIN")
    plan = node_of(query)
    assert isinstance(plan, Select)
    assert len(terms(query, SALE | CUSTOMER)) == len(linear.delta_terms(plan, SALE | CUSTOMER)) == 3


def test_union_of_anything_is_the_terms_of_its_branches() -> None:
    assert len(terms(f"{LEFT} UNION ALL {LEFT.replace('LEFT', 'FULL')}", CUSTOMER)) == 5


@pytest.mark.parametrize("word", ["EXCEPT", "INTERSECT ALL"])
def test_set_operation_is_evaluated_for_changed_row_values(word: str) -> None:
    found = terms(f"SELECT sale.id FROM shop.sale {word} SELECT customer.id FROM shop.customer", SALE)
    assert signs(found) == ["1", "1", "-1", "-1"]  # values without NULL, and with
    assert all(f") {word} (" in t for t in found)


@pytest.mark.parametrize(("key", "conditions"), [("sale.id", 1), ("sale.note", 2)])
def test_key_that_may_be_null_needs_a_second_condition(key: str, conditions: int) -> None:
    plan = node_of(
        f"SELECT q.m FROM (shop.customer c JOIN ( SELECT {key} AS k, max(sale.qty) AS m FROM shop.sale "
        f"GROUP BY {key}) q ON (true))"
    )
    assert isinstance(plan, Block)
    grouped = from_items(plan)[1].node
    assert isinstance(grouped, Block)
    found = general.delta(general.new_statement(SALE), grouped)
    assert signs(found) == ["1"] * conditions + ["-1"] * conditions


def test_keys_of_regions_hide_no_alias_of_the_query() -> None:
    plan = node_of("SELECT k.note, rank() OVER (PARTITION BY k.note ORDER BY k.id) AS r FROM shop.sale k")
    assert isinstance(plan, Block)
    assert not any(" AS k" in condition for condition in filter_by_keys(plan, "keys"))


def test_limit_is_evaluated_whole() -> None:
    new, old = terms("SELECT id FROM shop.sale ORDER BY id LIMIT 3", SALE)
    assert signs([new, old]) == ["1", "-1"]
    assert all("ORDER BY id LIMIT 3" in t for t in (new, old))


def test_shared_rows_are_said_once() -> None:
    into = general.new_statement(CUSTOMER)
    general.delta(into, node_of(LEFT))
    assert len(set(into.shared.values())) == len(into.shared)
    assert into.with_clause().count(" AS MATERIALIZED (") == len(into.shared)
