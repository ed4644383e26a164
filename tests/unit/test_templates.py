"""Compiled stream tables: how each aggregate is kept, what a refresh sends, what people are told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pgtrickle.model.catalog import Column
from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.measures import SCALES
from pgtrickle.pipeline.plan.nodes import Aggregate, Block, Select
from pgtrickle.pipeline.plan.shapes import output_names
from pgtrickle.pipeline.templates.explain import explain
from pgtrickle.pipeline.templates.stages import refresh_stages
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, RegionTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate
from tests.golden.shop import compile_plan, plan_of

INT, TEXT = SqlType(23, -1, "integer", 23, "b"), SqlType(25, -1, "text", 25, "b")
PRICE, FLOAT = SqlType(1700, 655366, "numeric(10,2)", 1700, "b"), SqlType(701, -1, "double precision", 701, "b")
ANY_NUMERIC = SqlType(1700, -1, "numeric", 1700, "b")
BIGINT, JSONB = SqlType(20, -1, "bigint", 20, "b"), SqlType(3802, -1, "jsonb", 3802, "b")
WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
EVERYTHING = {1: ChangedSource(1, WINDOW, 3), 2: ChangedSource(2, WINDOW, 4)}


def compiled(query: str, rows: Sequence[SqlType] = (), results: Sequence[SqlType] = ()) -> Template:
    """`rows` and `results` are what PostgreSQL would answer: types of keys and arguments, then of the calls."""
    plan = plan_of(query)
    answers = iter((rows, results))
    columns = [Column(i, n, "text", 25, -1) for i, n in enumerate(output_names(plan), start=1)]
    return compile_plan(plan, columns, lambda _: next(answers))


def fold(query: str, rows: Sequence[SqlType], results: Sequence[SqlType]) -> FoldTemplate:
    template = compiled(query, rows, results)
    assert isinstance(template, FoldTemplate)
    return template


def kinds(template: FoldTemplate) -> list[str]:
    return [m.kind for m in template.measures.measures]


@pytest.mark.parametrize(
    ("call", "type_", "kind"),
    [
        ("count(note)", TEXT, "add"),
        ("sum(qty)", INT, "add"),
        ("sum(price)", PRICE, "add"),
        ("avg(price)", PRICE, "add"),
        ("min(qty)", INT, "least"),
        ("max(price)", PRICE, "greatest"),
        ("min(note)", TEXT, "reread"),
        ("sum(qty)", FLOAT, "reread"),
        ("count(DISTINCT qty)", INT, "reread"),
        ("sum(DISTINCT qty)", INT, "reread"),
        ("min(DISTINCT qty)", INT, "least"),
    ],
)
def test_each_aggregate_is_kept_in_its_way(call: str, type_: SqlType, kind: str) -> None:
    template = fold(f"SELECT customer_id, {call} AS v FROM shop.sale GROUP BY customer_id", [INT, type_], [BIGINT])
    assert kinds(template) == [kind]


def test_count_of_rows_needs_no_measure() -> None:
    template = fold("SELECT customer_id, count(*) AS n FROM shop.sale GROUP BY customer_id", [INT], [BIGINT])
    assert kinds(template) == []
    assert template.measures.values == ('s."n"',)


def test_sum_and_average_of_one_argument_share_their_state() -> None:
    template = fold("SELECT sum(qty) AS s, avg(qty) AS a, count(qty) AS n FROM shop.sale", [INT] * 3, [BIGINT] * 3)
    assert len(template.measures.measures) == 2
    assert "/" in template.measures.values[1]


def test_sum_is_null_where_nothing_was_summed() -> None:
    template = fold("SELECT sum(qty) AS s FROM shop.sale", [INT], [BIGINT])
    assert template.measures.values[0].startswith('(CASE WHEN s."m0_n" > 0 THEN')


@pytest.mark.parametrize("call", ["sum(price / 2.0)", "avg(price / 2.0)", "(sum(price / 2.0) / 3.0)"])
def test_sum_of_unknown_scale_has_a_histogram_of_scales(call: str) -> None:
    template = fold(f"SELECT {call} AS s FROM shop.sale", [PRICE], [PRICE])
    assert kinds(template) == ["add", "add"]
    assert template.measures.measures[1].derived is not None
    assert "trim_scale" in template.output_statement("state AS s")


def test_one_key_is_shown_as_its_rows_are_written() -> None:
    template = fold("SELECT price, count(*) AS n FROM shop.sale GROUP BY price", [ANY_NUMERIC], [BIGINT])
    assert [m.derived for m in template.measures.measures] == [SCALES]
    with pytest.raises(NotDifferentiableError):  # no row may have the longest text of both
        fold("SELECT price, qty FROM shop.sale GROUP BY price, qty", [ANY_NUMERIC, FLOAT], [])


def test_filter_is_folded_into_the_argument() -> None:
    template = fold(
        "SELECT count(*) FILTER (WHERE ok) AS n, sum(qty) FILTER (WHERE ok) AS s FROM shop.sale",
        [INT] * 2,
        [BIGINT] * 2,
    )
    assert isinstance(template.rows, Select)
    assert [i.sql for i in template.rows.items] == ["CASE WHEN ok THEN 1 END", "CASE WHEN ok THEN qty END"]


def test_key_without_a_canonical_text_is_refused() -> None:
    with pytest.raises(NotDifferentiableError, match="jsonb"):
        fold("SELECT note, count(*) AS n FROM shop.sale GROUP BY note", [JSONB], [BIGINT])


def test_bag_sends_one_term_per_set_of_changed_occurrences() -> None:
    query = "SELECT a.id FROM ((shop.sale a JOIN shop.customer b ON (true)) JOIN shop.sale c ON (true))"
    template = compiled(query)
    assert isinstance(template, BagTemplate)
    assert template.delta_statement(EVERYTHING).count(" UNION ALL ") + 1 == 7
    assert template.delta_statement({2: EVERYTHING[2]}).count(" UNION ALL ") + 1 == 1
    assert template.relids == {1, 2}
    assert "__pgt_d" not in template.load_statement()


def region(query: str, keys: Sequence[SqlType] = ()) -> RegionTemplate:
    template = compiled(query, keys)
    assert isinstance(template, RegionTemplate)
    return template


def test_outer_join_is_a_bag_of_signed_rows() -> None:
    template = compiled("SELECT s.id, c.name FROM (shop.sale s LEFT JOIN shop.customer c ON ((c.id = s.customer_id)))")
    assert isinstance(template, BagTemplate)
    assert template.relids == {1, 2}
    assert "shop.stored" not in template.delta_statement(EVERYTHING)


def test_region_replaces_what_is_stored_of_it() -> None:
    template = region("SELECT id, rank() OVER (PARTITION BY customer_id ORDER BY qty) AS r FROM shop.sale", [INT])
    sql = template.delta_statement(EVERYTHING)
    assert template.has_column
    assert 'FROM shop.stored WHERE pg_catalog.hashtextextended("__pgt_region", 0) IN' in sql
    assert "PARTITION BY customer_id" in sql
    assert '"__pgt_region"' in template.load_statement()


def test_region_of_everything_is_stored_without_a_key() -> None:
    template = region("SELECT id FROM shop.sale LIMIT 3")
    sql = template.delta_statement(EVERYTHING)
    assert not template.has_column
    assert 'SELECT "id" FROM shop.stored' in sql
    assert "__pgt_region" not in sql + template.load_statement()


def test_regions_whose_key_has_several_texts_are_computed_as_they_were() -> None:
    query = "SELECT id, rank() OVER (PARTITION BY note ORDER BY qty) AS r FROM shop.sale"
    assert isinstance(compiled(query, [JSONB], [JSONB]), BagTemplate)
    assert not region(query.replace("rank", "row_number"), [JSONB]).has_column  # with ties: what is stored tells
    assert "trim_scale" in region(query, [PRICE]).load_statement()


def test_projection_over_a_region_carries_its_key() -> None:
    template = region(
        "SELECT q.id FROM ( SELECT sale.id, rank() OVER (PARTITION BY sale.customer_id ORDER BY sale.qty) AS r "
        "FROM shop.sale) q WHERE (q.r = 1)",
        [INT],
    )
    assert isinstance(template.plan, Block)
    assert template.plan is not template.core
    assert template.core.region == ("sale.customer_id",)
    assert 'q."__pgt_region"' in template.load_statement()


def test_distinct_is_a_fold_of_rows() -> None:
    template = fold("SELECT DISTINCT qty FROM shop.sale", [INT], [])
    assert kinds(template) == []
    assert template.slots.sums == template.slots.extremes == 0


def test_extremes_are_netted_by_the_database() -> None:
    grouped = "SELECT customer_id, {} AS v FROM shop.sale GROUP BY customer_id"
    with_extreme = fold(grouped.format("min(qty)"), [INT, INT], [INT])
    assert "HAVING sum(d.w) <> 0" in with_extreme.delta_statement(EVERYTHING)
    without = fold(grouped.format("sum(qty)"), [INT, INT], [BIGINT])
    assert "HAVING" not in without.delta_statement(EVERYTHING)


def test_visible_rows_pass_having_and_every_layer() -> None:
    query = (
        "SELECT k, (n * 2) AS twice FROM ( SELECT sale.customer_id AS k, count(*) AS n FROM shop.sale "
        "GROUP BY sale.customer_id HAVING (count(*) > 1)) g WHERE (n > 1)"
    )
    sql = fold(query, [INT], [BIGINT]).output_statement("state AS s")
    assert 's."n"' in sql
    assert "> 1)" in sql.partition("AS g")[0]
    assert "AS g WHERE (n > 1)" in sql


def test_explanation_names_every_operator() -> None:
    folded = fold(
        "SELECT c.region, min(s.qty) AS lo, count(DISTINCT s.qty) AS d, sum(s.qty) AS q FROM (shop.sale s "
        "JOIN shop.customer c ON ((c.id = s.customer_id))) GROUP BY c.region HAVING (count(*) > 1)",
        [TEXT, INT, INT, INT],
        [INT, BIGINT, BIGINT, BIGINT],
    )
    told = explain(refresh_stages(folded))
    text = "\n".join(told["tree"])
    assert told["mode"] == "DIFFERENTIAL"
    for part in ("Having", "Aggregate by (c.region)", "min(s.qty)", "Join of 2", "Scan shop.sale"):
        assert part in text
    (leaf,) = told["leaves"]
    assert leaf.count(") UNION ALL (") + 1 == 3  # either table changed, or both
    bag = explain(
        refresh_stages(compiled("SELECT sale.id FROM shop.sale UNION ALL SELECT customer.id FROM shop.customer"))
    )
    assert bag["tree"][0].startswith("Union all")
    assert isinstance(plan_of("SELECT count(*) AS n FROM shop.sale"), Aggregate)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT s.id FROM (shop.sale s LEFT JOIN shop.customer c ON (true))", "LEFT JOIN"),
        (
            "SELECT s.id FROM (shop.sale s FULL JOIN shop.customer c ON ((c.id = s.id)))",
            "as a left join and what has no",
        ),
        ("SELECT c.id FROM (shop.customer c FULL JOIN shop.sale s ON (true))", "FULL JOIN: evaluated whole"),
        ("SELECT id FROM shop.sale s WHERE (EXISTS ( SELECT 1 FROM shop.customer c))", "Subquery (exists)"),
        ("SELECT id FROM shop.sale LIMIT 3", "Replace by (nothing: all rows belong together)"),
        ("SELECT id FROM shop.sale ORDER BY id LIMIT 3", "Limit ORDER BY id LIMIT 3: the first 103 rows are kept"),
        ("SELECT sum(qty) OVER (PARTITION BY note) AS s FROM shop.sale", "Replace by (note)"),
        ("SELECT sale.id FROM shop.sale EXCEPT SELECT customer.id FROM shop.customer", "EXCEPT"),
        ("SELECT s.id, t.x FROM shop.sale s, LATERAL unnest(s.tags) t(x)", "Function unnest(s.tags) t(x)"),
    ],
)
def test_explanation_names_what_is_not_linear(query: str, told: str) -> None:
    keys = [TEXT] if "PARTITION BY" in query else []
    assert told in "\n".join(explain(refresh_stages(compiled(query, keys)))["tree"])


def limit(query: str, width: int) -> TopKTemplate:
    template = compiled(query, [INT] * width)
    assert isinstance(template, TopKTemplate)
    return template


def test_limit_takes_the_changes_up_to_the_edge() -> None:
    template = limit("SELECT note FROM shop.sale WHERE (qty > 1) ORDER BY qty DESC NULLS LAST, id OFFSET 2 LIMIT 3", 3)
    assert (template.needed, template.stored_rows) == (5, 105)
    sql = template.delta_statement(EVERYTHING)
    order = 'q.c1 DESC NULLS LAST, q.c2, q.k COLLATE "C"'
    assert f"rank() OVER (ORDER BY {order})" in sql
    assert "FROM shop.state AS s WHERE s.n = 0" in sql
    assert '"shop"."sale"' not in sql
    assert "shop.stored" not in sql


def test_limit_is_read_in_its_own_order_so_that_an_index_serves_it() -> None:
    sql = limit("SELECT note FROM shop.sale ORDER BY qty, id LIMIT 300", 3).load_statement()
    assert "AS q(c0, c1, c2) ORDER BY q.c1, q.c2 LIMIT 601)" in sql
    assert 'GROUP BY q.k, q.c1, q.c2 ORDER BY q.c1, q.c2, q.k COLLATE "C" LIMIT 600' in sql
    ties = limit("SELECT note FROM shop.sale ORDER BY qty FETCH FIRST (3) ROWS WITH TIES", 2)
    assert "FETCH FIRST 3 ROWS WITH TIES" in ties.load_statement()
    assert 'COLLATE "C"' not in ties.order("q", "c")


def test_visible_rows_of_a_limit_are_chosen_among_the_kept_ones() -> None:
    inner = "SELECT sale.note AS n, sale.qty FROM shop.sale ORDER BY sale.qty LIMIT 3"
    query = f"SELECT q.n FROM ( {inner}) q WHERE (q.qty > 1)"
    template = limit(query, 2)
    sql = template.output_statement("state AS s")
    assert 'FROM state AS s, pg_catalog.generate_series(1, least(s.n, 3)) ORDER BY s.k1, s.k COLLATE "C" LIMIT 3' in sql
    assert 'q."__pgt_h"' in sql
    assert "WHERE (q.qty > 1)" in sql.replace("((", "(").replace("))", ")")
    assert explain(refresh_stages(template))["tree"][0].startswith("Project/Filter over the first rows")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM shop.sale LIMIT 3",  # all rows tie
        "SELECT id FROM shop.sale ORDER BY id LIMIT ALL",
        "SELECT id FROM shop.sale ORDER BY id OFFSET 3",
        "SELECT id FROM shop.sale ORDER BY id LIMIT (1 + 2)",
        "SELECT id FROM shop.sale ORDER BY id LIMIT ( SELECT count(*) AS count FROM shop.customer)",
        "SELECT id, rank() OVER (ORDER BY qty) AS r FROM shop.sale ORDER BY id LIMIT 3",
        "SELECT q.id FROM ( SELECT sale.id FROM shop.sale ORDER BY sale.id LIMIT 9) q ORDER BY q.id DESC LIMIT 3",
    ],
)
def test_limit_is_compared_whole_where_its_rows_are_not_had_from_changes(query: str) -> None:
    assert not region(query).has_column


def test_order_of_a_type_that_no_table_can_have_is_compared_whole() -> None:
    record = SqlType(2249, -1, "record", 2249, "p")
    template = compiled("SELECT id FROM shop.sale ORDER BY ROW(qty, id) LIMIT 3", [INT, record])
    assert isinstance(template, RegionTemplate)
