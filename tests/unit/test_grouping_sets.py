"""GROUPING SETS, CUBE and ROLLUP: which sets there are, and what their rows show."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.parse.grouping_sets import ALIAS, ExpandedGroupingSets, expand
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.names import nested_from_items
from pgtrickle.pipeline.plan.nodes import Block, subqueries
from pgtrickle.pipeline.text.tokens import Cursor
from tests.golden.shop import FUNCTIONS, plan_of


def expanded(items: str, group: str, having: str | None = None) -> list[ExpandedGroupingSets]:
    cursor = Cursor(f"{items} ; {group} ; {having or ''}")
    pieces = cursor.split(0, cursor.stop, ";")
    columns = [(f"x{i}", *r) for i, r in enumerate(cursor.split(*pieces[0], ","))]
    clauses = Clauses(columns, cursor.split(*pieces[1], ","), pieces[2] if having is not None else None)
    return expand(cursor, clauses, FUNCTIONS.aggregates, {"m": 'COALESCE(x."m", y."m")'}, lambda key: key != ("ARR",))


@pytest.mark.parametrize(
    ("group", "sets", "without_keys"),
    [
        ("ROLLUP(a, b)", ["(0, true, true)", "(1, true, false)"], 1),
        ("CUBE(a, b)", ["(0, true, true)", "(1, true, false)", "(2, false, true)"], 1),
        ("GROUPING SETS ((a, b), (a), ())", ["(0, true, true)", "(1, true, false)"], 1),
        ("GROUPING SETS ((a), (b))", ["(0, true, false)", "(1, false, true)"], 0),
        ("GROUPING SETS ((a), (a))", ["(0, true)", "(1, true)"], 0),  # each set has its own rows
        ("GROUPING SETS ((), ())", [], 2),
        ("a, ROLLUP(b)", ["(0, true, true)", "(1, true, false)"], 0),
        ("ROLLUP((a, b), c)", ["(0, true, true, true)", "(1, true, true, false)"], 1),
        ("GROUPING SETS (ROLLUP(a), b)", ["(0, true, false)", "(1, false, true)"], 1),
    ],
)
def test_sets_are_rows_of_values_and_the_empty_one_is_a_select_of_its_own(
    group: str, sets: list[str], without_keys: int
) -> None:
    found = expanded("count(*)", group)
    assert [g.sets for g in found if g.sets is not None] == ([f"VALUES {', '.join(sets)}"] if sets else [])
    assert [g.keys for g in found if g.sets is None] == [()] * without_keys


def test_key_is_null_in_a_set_without_it() -> None:
    by_set, whole = expanded("a, (a + 1), count(a)", "ROLLUP(a)")
    number, is_in_set = by_set.names
    shown = f"(CASE WHEN {ALIAS}.{is_in_set} THEN a END)"
    assert [text for _, text in by_set.columns] == [shown, f"( {shown} + 1)", "count(a)"]
    assert by_set.keys == (f"{ALIAS}.{number}", shown[1:-1])
    # an aggregate over nothing: NULL of the type that the key has
    assert whole.columns[0][1] == "((array_agg(a) FILTER (WHERE false))[1])"


def test_absent_array_has_no_further_dimension() -> None:
    _, whole = expanded("arr", "ROLLUP(arr)")
    assert whole.columns[0][1] == "((mode() WITHIN GROUP (ORDER BY (arr)) FILTER (WHERE false)))"


def test_argument_of_an_aggregate_sees_the_row_as_it_is() -> None:
    (by_set,) = expanded("sum(a) FILTER (WHERE (a > 1))", "GROUPING SETS ((a), (b))")
    assert by_set.columns[0][1] == "sum(a) FILTER (WHERE (a > 1))"


def test_grouping_follows_from_the_number_of_the_set() -> None:
    by_set, whole = expanded("GROUPING(a, b), GROUPING(b)", "CUBE(a, b)")
    number = by_set.names[0]
    assert [text for _, text in by_set.columns] == [
        f"(CASE {ALIAS}.{number} WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 2 THEN 2 END)",
        f"(CASE {ALIAS}.{number} WHEN 0 THEN 0 WHEN 1 THEN 1 WHEN 2 THEN 0 END)",
    ]
    assert [text for _, text in whole.columns] == ["3", "1"]


def test_longer_key_is_found_before_a_shorter_one() -> None:
    (by_set,) = expanded("(a % 2), a", "GROUPING SETS (((a % 2)), (a))")
    assert "THEN a % 2 END" in by_set.columns[0][1]
    assert "THEN a END" in by_set.columns[1][1]


def test_having_is_said_of_each_set() -> None:
    by_set, whole = expanded("a", "ROLLUP(a)", having="(GROUPING(a) < count(*))")
    assert by_set.tail.endswith(f" HAVING ( (CASE {ALIAS}.{by_set.names[0]} WHEN 0 THEN 0 END) < count(*))")
    assert whole.tail.endswith(" HAVING ( 1 < count(*))")


def test_what_each_select_reads_is_its_own() -> None:
    """Else the change of one table would count twice behind IN."""
    plan = plan_of(
        "SELECT id FROM shop.customer WHERE (id IN ( SELECT s.customer_id FROM shop.sale s WHERE (EXISTS ( SELECT 1 "
        "FROM shop.sale o WHERE (o.id = s.qty))) GROUP BY ROLLUP(s.customer_id)))"
    )
    assert isinstance(plan, Block)
    assert plan.where is not None
    (sub,) = subqueries(plan.where)
    numbers = [part.number for part in nested_from_items(sub.node)]
    assert len(numbers) == len(set(numbers)) == 5  # two of each, and the list of sets
