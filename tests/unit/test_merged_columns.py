"""Columns that USING has merged, where subqueries name them."""

from __future__ import annotations

import re

import pytest

from pgtrickle.pipeline.differentiate.affected_rows import is_uncorrelated
from pgtrickle.pipeline.differentiate.full_join import split_full_joins
from pgtrickle.pipeline.plan.names import outer_aliases, qualified
from pgtrickle.pipeline.plan.nodes import Block, FromItem, Subquery, block_texts, from_items, subqueries
from pgtrickle.pipeline.plan.using import column_list_start, item_columns, merged_columns
from pgtrickle.pipeline.render.delta_rows import current_rows
from pgtrickle.pipeline.text.using_alias import with_named_rows
from tests.golden.shop import plan_of

FULL = "(shop.sale s FULL JOIN shop.customer c USING (id))"


def block(text: str) -> Block:
    plan = plan_of(text)
    assert isinstance(plan, Block)
    return plan


def the_sub(sub: str, source: str = FULL) -> Subquery:
    plan = block(f"SELECT s.qty, {sub} AS n FROM {source}")
    (found,) = (s for text in block_texts(plan) for s in subqueries(text))
    return found


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (FULL, 'COALESCE(s."id", c."id")'),
        ("(shop.sale s LEFT JOIN shop.customer c USING (id))", 'COALESCE(s."id", c."id")'),
        ("(shop.sale s RIGHT JOIN shop.customer c USING (id))", 'COALESCE(c."id", s."id")'),
        (
            f"({FULL} FULL JOIN shop.customer d USING (id))",
            'COALESCE(COALESCE(s."id", c."id"), d."id")',
        ),
        ("(shop.sale s LEFT JOIN shop.customer c ON ((c.id = s.id)))", None),
    ],
)
def test_a_merged_column_is_that_of_the_side_that_stays(source: str, wanted: str | None) -> None:
    assert merged_columns(block(f"SELECT s.qty FROM {source}").trees).get("id") == wanted


ODD = 'shop."Odd Table"'


@pytest.mark.parametrize(
    "sub",
    [
        f"( SELECT count(*) AS count FROM {ODD} b WHERE (b.select = id))",
        f"( SELECT max(q.n) AS max FROM ( SELECT (b.select + id) AS n FROM {ODD} b) q)",
        f"( SELECT b.select FROM {ODD} b WHERE (b.select > id) ORDER BY b.select LIMIT 1)",
        "( SELECT count(*) AS count FROM ( VALUES (id), (2)) v(i))",
        "( SELECT count(*) AS count FROM generate_series(1, id) g(id_1) WHERE (g.id_1 > 1))",
        f"( SELECT count(*) AS count FROM {ODD} b WHERE (EXISTS ( SELECT FROM {ODD} d WHERE (d.select = id))))",
        f"ARRAY( SELECT b.select FROM {ODD} b UNION SELECT id FROM {ODD} b)",
        f"( SELECT max(q.s) AS max FROM ( SELECT sum(1) OVER w AS s FROM {ODD} b WINDOW w AS (PARTITION BY (id))) q)",
        f"( WITH w AS ( SELECT b.select FROM {ODD} b WHERE (b.select = id)) SELECT count(*) AS count FROM w)",
    ],
)
def test_a_subquery_shows_that_it_takes_one(sub: str) -> None:
    found = the_sub(sub)
    assert outer_aliases(found.node) == {"s", "c"}
    assert not is_uncorrelated(found)
    assert 'COALESCE(s."id", c."id")' in current_rows(found.node)


@pytest.mark.parametrize(
    "sub",
    [
        "( SELECT count(*) AS count FROM (shop.sale a FULL JOIN shop.customer b USING (id)) WHERE (id > 3))",
        "( SELECT count(*) AS id FROM shop.customer id WHERE (id.name = 'x'::text))",
        "( SELECT count(*) AS count FROM generate_series(1, 3) g(id) WHERE (id > 1))",
        f"( SELECT sum(1) OVER id AS sum FROM {ODD} b WINDOW id AS (PARTITION BY b.select))",
    ],
)
def test_a_name_of_its_own_is_left_as_it_is(sub: str) -> None:
    found = the_sub(sub)
    assert not outer_aliases(found.node)
    assert "COALESCE" not in current_rows(found.node)


def test_conditions_of_joins_and_lateral_items_take_what_stands_left_of_them() -> None:
    lateral = f"LATERAL ( SELECT count(*) AS n FROM {ODD} b WHERE (b.select = id)) l"
    on = f"EXISTS ( SELECT FROM {ODD} d WHERE (d.select = id))"
    plan = block(f"SELECT s.qty FROM (({FULL} JOIN {lateral} ON ({on})) FULL JOIN shop.customer e USING (id))")
    (item,) = (p for p in from_items(plan) if p.is_lateral)
    assert item.node is not None
    (condition,) = (s for text in block_texts(plan) for s in subqueries(text))
    for node in (item.node, condition.node):
        assert 'COALESCE(s."id", c."id")' in current_rows(node)
        assert outer_aliases(node) == {"s", "c"}


def test_in_a_half_of_a_full_join_a_merged_column_is_that_of_one_side() -> None:
    """An index finds that; of two types it has to stay what it is."""
    sub = f"( SELECT count(*) AS count FROM {ODD} b WHERE (b.select = id))"
    halves = split_full_joins(block(f"SELECT {sub} AS n FROM ({FULL} FULL JOIN shop.customer d USING (id))"))
    shown = [current_rows(s.node) for half in halves for s in subqueries(half.columns[0].text)]
    assert [re.findall(r"= (.*?)\)", text)[-1] for text in shown] == ['s."id"', 'c."id"', 'd."id"']
    other = block(f"SELECT {sub} AS n FROM (shop.sale s(a, b, c, id) FULL JOIN shop.customer c USING (id))")
    for half in split_full_joins(other):
        assert 'COALESCE(s."id", c."id")' in current_rows(half)


def test_aliases_that_mean_other_items_further_inside_are_not_those() -> None:
    inner = f"( SELECT count(*) AS count FROM {ODD} b WHERE (b.select = id))"
    view = f"( SELECT max(q.n) AS max FROM ( SELECT {inner} AS n FROM {FULL}) q)"
    for half in split_full_joins(block(f"SELECT {view} AS n FROM {FULL}")):
        assert current_rows(half).count('COALESCE(s."id", c."id")') == 1


def test_what_stands_before_in_is_written_out_where_it_stands_inside() -> None:
    plan = block(f"SELECT s.qty FROM {FULL} WHERE (id IN ( SELECT b.id FROM shop.customer b))")
    assert plan.where is not None
    (sub,) = subqueries(plan.where)
    assert sub.test is not None
    assert qualified(plan, sub.test) == 'COALESCE(s."id", c."id")'
    assert current_rows(plan).count("COALESCE") == 0  # the SELECT itself keeps the name


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("LEFT JOIN", 's."id"'),
        ("RIGHT JOIN", 'c."id"'),
        ("FULL JOIN", 'COALESCE(s."id", c."id")'),
    ],
)
def test_one_side_is_enough_to_compare_where_the_join_preserves_it(kind: str, wanted: str) -> None:
    plan = block(f"SELECT s.qty FROM (shop.sale s {kind} shop.customer c USING (id))")
    assert qualified(plan, "id") == wanted
    assert qualified(plan, "(id, s.qty)") == f"({wanted}, s.qty)"
    for computed in ("(id + 1)", "abs(id)", "(id)::text"):
        assert "COALESCE" in str(qualified(plan, computed))
    other = block(
        f"SELECT s.qty FROM (shop.sale s(a, b, id) {kind} (SELECT name AS id FROM shop.customer) c USING (id))"
    )
    assert str(qualified(other, "id")).startswith("COALESCE")


@pytest.mark.parametrize(
    ("call", "listed"),
    [
        ("generate_series(1, 3) g(n)", {"n"}),
        ("unnest(ARRAY[1, 2]) WITH ORDINALITY u(x, ord)", {"x", "ord"}),
        ("public.f(1) AS r(a numeric(10,2), b text)", {"a", "numeric", "b", "text"}),
        ("ROWS FROM(f(1), g(2)) r(a, b)", {"a", "b"}),
    ],
)
def test_a_function_lists_its_columns(call: str, listed: set[str]) -> None:
    assert item_columns(FromItem(0, None, "x", (call,))) == listed


@pytest.mark.parametrize("call", ["r", "pg_catalog.f(1)", "JSON_TABLE(x, '$[*]' COLUMNS (a integer PATH '$')) AS j"])
def test_one_that_does_not_may_have_any_of_its_words(call: str) -> None:
    assert column_list_start(call) == 0


def test_rows_of_an_alias_for_using_are_named() -> None:
    text = 'SELECT f(ROW(a.i, COALESCE(a."J", b."J"))), ROW(a.k) FROM (a FULL JOIN b USING (i, "J") AS x)'
    assert with_named_rows(text) == 'SELECT f(x.*), ROW(a.k) FROM (a FULL JOIN b USING (i, "J") AS x)'
    assert with_named_rows(text.replace(" AS x", "")) == text.replace(" AS x", "")
