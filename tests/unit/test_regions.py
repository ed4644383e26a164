"""What belongs together in a SELECT, and whether its order lets PostgreSQL choose between rows."""

from __future__ import annotations

import pytest

from pgtrickle.model.catalog import Column
from pgtrickle.model.reasons import NotDifferentiableError, ReasonCode
from pgtrickle.pipeline.plan.nodes import Aggregate, Block, Node, column_names, from_items
from pgtrickle.pipeline.templates.topk import TopKTemplate
from tests.golden.shop import compile_plan, plan_of

LIMIT, WINDOW = ReasonCode.LIMIT_TIES, ReasonCode.WINDOW_TIES


def block(text: str) -> Block:
    """The block of a text; below another operator, where nothing is folded."""
    plan = plan_of(text)
    if isinstance(plan, Aggregate):
        plan = plan_of(f"SELECT c.id FROM (( {text}) q JOIN shop.customer c ON (true))")
        assert isinstance(plan, Block)
        below: Node | None = from_items(plan)[0].node
        assert isinstance(below, Block)
        return below
    assert isinstance(plan, Block)
    return plan


@pytest.mark.parametrize(
    "text",
    [
        "SELECT note FROM shop.sale ORDER BY qty, id LIMIT 3",  # the table's key
        "SELECT s.note FROM shop.sale s ORDER BY s.qty DESC NULLS LAST, s.id LIMIT 3",
        "SELECT region FROM shop.customer ORDER BY region LIMIT 3",  # rows that tie are alike
        "SELECT upper(name) AS u, region FROM shop.customer ORDER BY name, region LIMIT 3",
        "SELECT note FROM shop.sale ORDER BY qty FETCH FIRST (3) ROWS WITH TIES",
        "SELECT DISTINCT ON (customer_id) customer_id, note FROM shop.sale ORDER BY customer_id, at DESC, id",
        "SELECT DISTINCT ON (name) name FROM shop.customer ORDER BY name",
        "SELECT note, row_number() OVER (PARTITION BY customer_id ORDER BY id) AS r FROM shop.sale",
        "SELECT note, rank() OVER (ORDER BY qty) AS r FROM shop.sale",  # the same for peers
        "SELECT note, sum(qty) OVER (ORDER BY at) AS r FROM shop.sale",
        # the keys of groups; the key of a table through an equality
        "SELECT qty, count(*) AS n FROM shop.sale GROUP BY qty ORDER BY (count(*)) DESC, qty LIMIT 3",
        "SELECT s.note FROM shop.sale s JOIN shop.sale t ON ((s.id = t.qty)) ORDER BY t.id LIMIT 3",
        "SELECT qty, string_agg(note, ','::text ORDER BY id) AS s FROM shop.sale GROUP BY qty ORDER BY qty LIMIT 3",
        "SELECT qty, string_agg(note, ','::text ORDER BY note) AS s FROM shop.sale GROUP BY qty "
        "ORDER BY qty, (string_agg(note, ','::text ORDER BY note)) LIMIT 3",
    ],
)
def test_order_that_decides_leaves_one_answer(text: str) -> None:
    assert block(text).undetermined is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("SELECT id FROM shop.sale LIMIT 3", LIMIT),
        ("SELECT id FROM shop.sale ORDER BY qty LIMIT 3", LIMIT),
        (
            "SELECT id FROM shop.sale ORDER BY qty OFFSET 1 FETCH FIRST (2) ROWS WITH TIES",
            LIMIT,
        ),  # which are skipped
        ("SELECT id, name FROM shop.customer ORDER BY id LIMIT 3", LIMIT),  # no key that is known
        (
            "SELECT s.note FROM (shop.sale s JOIN shop.customer c ON ((c.id = s.customer_id))) ORDER BY s.id LIMIT 3",
            LIMIT,
        ),
        ("SELECT DISTINCT qty, note FROM shop.sale ORDER BY qty LIMIT 3", LIMIT),
        (
            "SELECT DISTINCT ON (customer_id) customer_id, note FROM shop.sale ORDER BY customer_id, at DESC",
            ReasonCode.DISTINCT_ON_TIES,
        ),
        (
            "SELECT note, row_number() OVER (PARTITION BY customer_id ORDER BY at) AS r FROM shop.sale",
            WINDOW,
        ),
        ("SELECT note, lag(qty) OVER (ORDER BY at) AS r FROM shop.sale", WINDOW),
        (
            "SELECT note, sum(qty) OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) AS r FROM shop.sale",
            WINDOW,
        ),
        (
            "SELECT qty, array_agg(note) AS a FROM shop.sale GROUP BY qty ORDER BY qty, (array_agg(note)) LIMIT 3",
            ReasonCode.UNORDERED_AGGREGATE,
        ),
        ("SELECT qty, count(*) AS n FROM shop.sale GROUP BY qty, ok ORDER BY qty LIMIT 3", LIMIT),  # groups that tie
        ("SELECT qty, sum(qty) AS n FROM shop.sale GROUP BY qty, ok ORDER BY qty LIMIT 3", LIMIT),
        (
            "SELECT qty, array_agg(note ORDER BY at) AS a FROM shop.sale GROUP BY qty "
            "ORDER BY qty, (array_agg(note ORDER BY at)) LIMIT 3",
            ReasonCode.AGGREGATE_TIES,
        ),
    ],
)
def test_ties_are_told(text: str, code: ReasonCode) -> None:
    told = block(text).undetermined
    assert told is not None
    assert told.code == code


def test_key_decides_nothing_over_grouping_sets() -> None:
    plan = block("SELECT id, qty FROM shop.sale GROUP BY GROUPING SETS ((id), (qty)) ORDER BY id LIMIT 3")
    assert plan.undetermined is not None


def test_ties_are_allowed_at_the_top_only() -> None:
    """There the rows that were chosen are stored; below, the choice would be made twice."""
    limited = "SELECT sale.id, sale.qty FROM shop.sale ORDER BY sale.qty LIMIT 3"
    plan = block(limited)
    columns = [Column(i, n, "integer", 23, -1) for i, n in enumerate(column_names(plan), start=1)]
    assert isinstance(compile_plan(plan, columns, lambda _: ()), TopKTemplate)
    above = block(f"SELECT c.name, q.qty FROM (shop.customer c JOIN ( {limited}) q ON ((q.id = c.id)))")
    with pytest.raises(NotDifferentiableError, match="below another operator"):
        compile_plan(above, columns, lambda _: ())


@pytest.mark.parametrize(
    ("clauses", "region"),
    [
        ("rank() OVER (PARTITION BY customer_id ORDER BY id) AS a FROM shop.sale", ("customer_id",)),
        (
            "rank() OVER (PARTITION BY ok, customer_id ORDER BY id) AS a, "
            "sum(qty) OVER (PARTITION BY customer_id, note) AS b FROM shop.sale",
            ("customer_id",),
        ),
        (
            "rank() OVER (PARTITION BY ok ORDER BY id) AS a, sum(qty) OVER (PARTITION BY note) AS b FROM shop.sale",
            (),
        ),
        ("rank() OVER (PARTITION BY (qty % 2) ORDER BY id) AS a FROM shop.sale", ("(qty % 2)",)),
        (
            "sum(qty) OVER w AS a, rank() OVER (w ORDER BY id) AS b FROM shop.sale "
            "WINDOW w AS (PARTITION BY customer_id)",
            ("customer_id",),
        ),
        (
            "customer_id, ok, sum(count(*)) OVER (PARTITION BY ok) AS a FROM shop.sale GROUP BY customer_id, ok",
            ("ok",),
        ),
        ("ok, rank() OVER (PARTITION BY (count(*)) ORDER BY ok) AS a FROM shop.sale GROUP BY ok", ()),
        ("rank() OVER (PARTITION BY ok ORDER BY id) AS a FROM shop.sale ORDER BY id LIMIT 1", ()),
    ],
)
def test_region_is_what_all_windows_share(clauses: str, region: tuple[str, ...]) -> None:
    assert block(f"SELECT {clauses}").region == region


def test_window_of_a_subquery_is_its_own() -> None:
    plan = block(
        "SELECT id, ( SELECT max(q.r) AS max FROM ( SELECT rank() OVER (ORDER BY c.id) AS r "
        "FROM shop.customer c) q) AS m FROM shop.sale"
    )
    assert plan.region is None


def test_filter_stands_between_a_window_function_and_over() -> None:
    plan = block("SELECT note, count(*) FILTER (WHERE ok) OVER (PARTITION BY qty) AS n FROM shop.sale")
    assert (plan.region, plan.undetermined) == (("qty",), None)
