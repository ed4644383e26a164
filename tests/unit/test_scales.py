"""The display scales of a sum's argument, where it can be known."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.plan.nodes import Aggregate, Select, Values
from pgtrickle.pipeline.plan.scales import output_scales, scales_of
from tests.golden.shop import plan_of


@pytest.mark.parametrize(
    ("sql", "scale"),
    [
        ("qty", 0),
        ("price", 2),
        ("(price * (qty)::numeric)", 2),
        ("(price * price)", 4),
        ("(price + 1.125)", 3),
        ("(- price)", 2),
        ("(price - (1)::numeric)", 2),
        ("(price * 1.5)", 3),
        ("(price)::numeric(12,4)", 4),
        ("(price)::numeric(12)", 0),
        ("'1.250'::numeric", 3),
        ("sale.price", 2),
        ("((EXTRACT(day FROM (day + 1)))::integer)::numeric", 0),
        ("((length(note))::bigint * price)", 2),
        ("(note)::numeric", None),
        ("(price / 2.0)", None),
        ("round(price, 1)", 1),
        ("round(price)", 0),
        ("round(price, qty)", None),
        ("round(price, '-1'::integer)", None),
        ("(price % (3)::numeric)", 2),
        ("abs(price)", 2),
        ("NULLIF(price, 1.125)", 2),
        ("(length(note))::numeric", 0),
        ("(count(*))::numeric", 0),
        ("(max(price) OVER (PARTITION BY qty))", 2),
        ("sum(DISTINCT price)", 2),
        ("(avg(price) OVER ())", None),
        ("COALESCE(price, 0.0)", {1, 2}),
        ("CASE WHEN ok THEN price ELSE 0.125 END", {2, 3}),
        ("CASE WHEN ok THEN price WHEN (qty > 1) THEN (0)::numeric END", {0, 2}),
        ("CASE WHEN ok THEN price ELSE NULL::numeric END", 2),
        ("(CASE WHEN ok THEN price ELSE (0)::numeric END * 1.5)", {1, 3}),
        ("(CASE WHEN ok THEN price ELSE (0)::numeric END + 1.5)", {1, 2}),
        ("GREATEST(price, 1.125)", {2, 3}),
        ("NULL::numeric", set()),
        ("CASE WHEN ok THEN price ELSE (price / 2.0) END", None),
        ("1e3", None),
        ("gone.price", None),
        ("missing", None),
        ("('x' ||", None),
    ],
)
def test_scales_of_an_expression(sql: str, scale: int | set[int] | None) -> None:
    plan = plan_of("SELECT id FROM shop.sale")
    assert isinstance(plan, Select)
    assert scales_of(sql, plan.source, lambda _: {}) == ({scale} if isinstance(scale, int) else scale)


@pytest.mark.parametrize("sql", ["abs(price)", "round(price, 1)", "(price % 3.0)", "(length(note))::numeric"])
def test_state_adds_up_simple_expressions_only(sql: str) -> None:
    plan = plan_of("SELECT id FROM shop.sale")
    assert isinstance(plan, Select)
    assert scales_of(sql, plan.source) is None


def test_scale_is_followed_through_subqueries_and_unions() -> None:
    nested = plan_of("SELECT q.amount FROM ( SELECT (sale.price * 1.5) AS amount FROM shop.sale) q")
    assert isinstance(nested, Select)
    assert scales_of("q.amount", nested.source) == frozenset({3})
    united = plan_of(
        "SELECT q.amount FROM ( SELECT sale.price AS amount FROM shop.sale "
        "UNION ALL SELECT 1.125 AS amount FROM shop.sale) q"
    )
    assert isinstance(united, Select)
    assert scales_of("q.amount", united.source) is None
    assert scales_of("q.amount", united.source, lambda _: {}) == frozenset({2, 3})


def test_integer_column_of_a_subquery_has_scale_0() -> None:
    nested = plan_of("SELECT q.n FROM ( SELECT (sale.qty / 2) AS n, sale.price / 2 AS p FROM shop.sale) q")
    assert isinstance(nested, Select)
    assert scales_of("(q.n)::numeric", nested.source) is None
    assert scales_of("(q.n)::numeric", nested.source, lambda _: {"n": 23, "p": 1700}) == frozenset({0})
    assert scales_of("q.p", nested.source, lambda _: {"n": 23, "p": 1700}) is None


def test_bare_column_of_a_join_is_unknown() -> None:
    joined = plan_of("SELECT count(*) AS n FROM (shop.sale s JOIN shop.customer c ON (true))")
    assert isinstance(joined, Aggregate)
    assert scales_of("price", joined.input.source) is None
    assert scales_of("s.price", joined.input.source) == frozenset({2})
    assert scales_of("price", None) is None


def test_scale_of_values_is_that_of_all_rows() -> None:
    rows = Values("VALUES (1.25,1), (10.00,NULL::integer), (NULL::numeric,3)", ("x", "y"))
    assert output_scales(rows, "x", lambda _: {}) == frozenset({2})
    assert output_scales(rows, "y", lambda _: {}) == frozenset({0})
    assert output_scales(Values("VALUES (1.25), ((1.0 / 3.0))", ("x",)), "x", lambda _: {}) is None
