"""Which occurrence of a table a term reads as old, changed or new."""

from __future__ import annotations

import pytest

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.linear import ChangedSource, Term
from pgtrickle.pipeline.plan.nodes import Select, UnionAll, scans
from tests.golden.shop import plan_of

WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
SALE, CUSTOMER = ChangedSource(1, WINDOW, 3), ChangedSource(2, WINDOW, 4)
JOIN = "SELECT s.id FROM ((shop.sale s JOIN shop.customer c ON (true)) JOIN shop.sale z ON (true))"


def join() -> Select:
    plan = plan_of(JOIN)
    assert isinstance(plan, Select)
    return plan


def roles(changed: dict[int, ChangedSource]) -> list[list[str]]:
    plan = join()
    return [[linear.role(s, t) for s in scans(plan)] for t in linear.delta_terms(plan, changed)]


def test_each_set_of_changed_occurrences_is_a_term_with_its_sign() -> None:
    assert roles({1: SALE}) == [["delta", "new", "new"], ["new", "new", "delta"], ["delta", "new", "delta"]]
    assert len(roles({1: SALE, 2: CUSTOMER})) == 7
    assert [linear.sign(t) for t in linear.delta_terms(join(), {1: SALE})] == [1, 1, -1]
    assert roles({}) == []


def test_sign_is_carried_by_one_delta_of_the_set() -> None:
    plan = join()
    clauses = [" ".join(linear.shared_delta_rows(plan, t).values()) for t in linear.delta_terms(plan, {1: SALE})]
    assert [c.count("WHEN 'I' THEN 1") for c in clauses] == [1, 1, 1]
    assert [c.count("WHEN 'D' THEN 1") for c in clauses] == [0, 0, 1]
    names = {n for t in linear.delta_terms(plan, {1: SALE}) for n in linear.shared_delta_rows(plan, t)}
    first, _, last = (s.occurrence for s in scans(plan))
    assert names == {f'"__pgt_d{first}"', f'"__pgt_d{last}"', f'"__pgt_n{first}"'}  # one statement may hold all terms


def test_old_stands_left_of_the_change_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MAX_EXPANDED", 2)
    assert roles({1: SALE, 2: CUSTOMER}) == [["delta", "new", "new"], ["old", "delta", "new"], ["old", "old", "delta"]]


def test_as_of_reads_every_changed_table_as_it_was() -> None:
    term = Term(frozenset(), {1: SALE}, as_of=lambda _, alias: (alias, "true"))
    assert [linear.role(s, term) for s in scans(join())] == ["old", "new", "old"]


def test_union_has_rows_only_in_the_branch_of_the_change() -> None:
    plan = plan_of("SELECT sale.id FROM shop.sale UNION ALL SELECT customer.id FROM shop.customer")
    assert isinstance(plan, UnionAll)
    first, second = linear.delta_terms(plan, {1: SALE, 2: CUSTOMER})
    assert linear.contributing(plan, first) == plan.branches[:1]
    assert linear.contributing(plan, second) == plan.branches[1:]
    assert linear.contributing(plan, Term(frozenset(), {})) == plan.branches
    sql = linear.render(plan, first).sql
    assert sql.count("WHERE false") == 1  # for the types of the union
    assert sql.index("__pgt_d") < sql.index("WHERE false")


def test_weight_is_the_product_of_the_weighted_members() -> None:
    plan = join()
    terms = linear.delta_terms(plan, {1: SALE, 2: CUSTOMER})
    weights = [linear.render(plan, t).sql.partition(" FROM ")[0] for t in terms]
    assert weights[0].endswith('s."__pgt_w" AS "__pgt_w"')
    assert weights[3].endswith('s."__pgt_w" * c."__pgt_w" AS "__pgt_w"')
    assert weights[6].endswith('s."__pgt_w" * c."__pgt_w" * z."__pgt_w" AS "__pgt_w"')
    assert not linear.render(plan, Term(frozenset(), {})).weighted


def test_changes_are_limited_to_their_number() -> None:
    plan = join()
    first, *_ = linear.delta_terms(plan, {1: SALE})
    assert [s.endswith("LIMIT 3") for s in linear.shared_delta_rows(plan, first).values()] == [True]
    assert linear.shared_delta_rows(plan, Term(frozenset(), {})) == {}


def test_query_that_needs_no_column_still_counts_rows() -> None:
    from pgtrickle.pipeline.parse.query import parse
    from tests.golden.shop import FUNCTIONS, find

    plan = parse("SELECT 1 AS one FROM shop.sale", find, {}, FUNCTIONS)
    assert isinstance(plan, Select)
    (term,) = linear.delta_terms(plan, {1: SALE})
    assert "1 AS __pgt_one" in "".join(linear.shared_delta_rows(plan, term).values())
    assert "1 AS __pgt_one" in linear.render(plan, Term(frozenset(), {})).sql
