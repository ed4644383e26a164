"""From texts that pg_get_viewdef printed (PostgreSQL 18, not pretty) to plan nodes."""

from __future__ import annotations

import pytest

from pgtrickle.errors import SourceChangedError
from pgtrickle.model.reasons import NotDifferentiableError, ReasonCode
from pgtrickle.pipeline.parse.query import parse
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    CallPlace,
    Concat,
    Distinct,
    From,
    FromItem,
    Join,
    KeyPlace,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Subquery,
    UnionAll,
    Values,
    block_texts,
    column_names,
    from_items,
    plain_sql,
    scans,
    subqueries,
)
from pgtrickle.pipeline.plan.shapes import output_names
from tests.golden.shop import FUNCTIONS, find, plan_of


def select(text: str) -> Select:
    plan = plan_of(text)
    assert isinstance(plan, Select)
    return plan


def aggregate(text: str) -> Aggregate:
    plan = plan_of(text)
    assert isinstance(plan, Aggregate)
    return plan


def block(text: str) -> Block:
    plan = plan_of(text)
    assert isinstance(plan, Block)
    return plan


def the_sub(plan: Block) -> Subquery:
    (found,) = (s for text in block_texts(plan) for s in subqueries(text))
    return found


def the_part(plan: Block) -> FromItem:
    (found,) = from_items(plan)
    return found


def assert_numbers_increase(plan: Plan) -> None:
    numbers = [s.occurrence for s in scans(plan)]
    assert numbers == sorted(set(numbers))


def source(plan: Select | Aggregate) -> From:
    rows = plan.input.rows(()) if isinstance(plan, Aggregate) else plan
    assert isinstance(rows, Select)
    assert rows.source is not None
    return rows.source


def test_expressions_stay_verbatim() -> None:
    plan = select(" SELECT id,\n    (qty * 2) AS d\n   FROM shop.sale\n  WHERE ((qty > 2) AND (note ~~ 'a%'::text));")
    assert [(i.name, i.sql) for i in plan.items] == [("id", "id"), ("d", "(qty * 2)")]
    assert plan.where == "((qty > 2) AND (note ~~ 'a%'::text))"


def test_quoted_names_keep_their_case_and_quotes() -> None:
    plan = select(
        ' SELECT "group",\n    "Mixed Case" AS "AS",\n    "quo""te",\n    "select" AS "from"\n'
        """   FROM shop."Odd Table" o\n  WHERE ("Mixed Case" <> 'it''s; FROM'::text);"""
    )
    assert [i.name for i in plan.items] == ["group", "AS", 'quo"te', "from"]
    assert plan.where == """("Mixed Case" <> 'it''s; FROM'::text)"""
    (scan,) = scans(plan)
    assert scan.relation.name == "Odd Table"
    assert source(plan).members[0].alias == "o"


def test_column_alias_list_renames_what_a_table_exposes() -> None:
    plan = select(" SELECT x,\n    y\n   FROM shop.customer t(x, y, region)\n  WHERE (y IS NOT NULL);")
    (scan,) = scans(plan)
    assert scan.exposes == ((1, "x"), (2, "y"), (3, "region"))


def test_only_needed_columns_are_exposed() -> None:
    plan = parse("SELECT name FROM shop.customer", find, {2: frozenset({2})}, FUNCTIONS)
    assert scans(plan)[0].exposes == ((2, "name"),)


def test_joins_keep_their_text_around_the_members() -> None:
    plan = select(
        " SELECT s.id,\n    c.name\n   FROM ((shop.sale s\n"
        "     JOIN shop.customer c ON (((c.id = s.customer_id) AND (s.qty > 1))))\n"
        '     CROSS JOIN shop."Odd Table" o),\n    shop.customer d\n  WHERE (d.id < c.id);'
    )
    parts = ("(", "(", 0, " JOIN ", 1, " ON (((c.id = s.customer_id) AND (s.qty > 1)))", ")", " CROSS JOIN ", 2, ")")
    assert source(plan).parts == (*parts, ", ", 3)
    assert [m.alias for m in source(plan).members] == ["s", "c", "o", "d"]
    assert_numbers_increase(plan)


def test_using_stays() -> None:
    plan = select(" SELECT sale.id,\n    customer.name\n   FROM (shop.sale\n     JOIN shop.customer USING (id));")
    assert " USING (id)" in source(plan).parts
    assert [m.alias for m in source(plan).members] == ["sale", "customer"]


def test_cte_with_names_is_inlined_wherever_it_stands() -> None:
    plan = select(
        " WITH a AS (\n         SELECT sale.id,\n            sale.qty\n           FROM shop.sale\n        ), "
        "b(x, y) AS MATERIALIZED (\n         SELECT a.id,\n            a.qty\n           FROM a\n"
        "          WHERE (a.qty > 1)\n        )\n SELECT b.x,\n    z.y\n   FROM (b\n     JOIN b z ON ((z.x = b.y)));"
    )
    first, second = source(plan).members
    assert (first.alias, second.alias) == ("b", "z")
    assert isinstance(first.node, Select)
    assert output_names(first.node) == ("x", "y")
    assert [s.relation.name for s in scans(plan)] == ["sale", "sale"]
    assert_numbers_increase(plan)


def test_nested_views_are_inlined_under_their_own_names() -> None:
    plan = select(" SELECT n,\n    (amount + 1) AS more\n   FROM shop.nested n;")
    assert [s.relation.name for s in scans(plan)] == ["sale", "customer"]
    (nested,) = source(plan).members
    assert isinstance(nested.node, Select)
    big, named = source(nested.node).members
    assert isinstance(big.node, Select)
    assert output_names(big.node) == ("id", "amount", "customer_id")
    assert named.alias == "n"


def test_nested_unions_keep_their_branches() -> None:
    plan = plan_of(
        " SELECT customer.id,\n    customer.name\n   FROM shop.customer\nUNION ALL (\n         SELECT sale.id,\n"
        "            sale.note AS name\n           FROM shop.sale\n        UNION ALL\n         SELECT 1 AS id,\n"
        "            'x'::text AS name\n);"
    )
    assert isinstance(plan, UnionAll)
    assert [type(b) for b in plan.branches] == [Select, UnionAll]
    assert len(scans(plan)) == 2


def test_subquery_is_a_member() -> None:
    plan = select(
        " SELECT a\n   FROM ( SELECT s.id AS a,\n            c.name\n           FROM (shop.sale s\n"
        "             JOIN shop.customer c ON ((c.id = s.customer_id)))) q\n  WHERE (name = 'x'::text);"
    )
    (member,) = source(plan).members
    assert member.alias == "q"
    assert isinstance(member.node, Select)


def test_order_by_of_a_bag_means_nothing() -> None:
    assert select(" SELECT id\n   FROM shop.sale\n  ORDER BY id DESC;") == select("SELECT id FROM shop.sale")


def test_types_of_several_words_stay_whole() -> None:
    plan = select(
        " SELECT (id)::character varying(20) AS v,\n    (qty)::double precision AS d,\n"
        "    (at)::timestamp without time zone AS t,\n    (at)::timestamp(3) with time zone AS t3,\n"
        "    (note)::bit varying(5) AS b,\n    '1 day'::interval day to second AS i\n   FROM shop.sale;"
    )
    assert [i.name for i in plan.items] == ["v", "d", "t", "t3", "b", "i"]
    assert plan.items[3].sql == "(at)::timestamp(3) with time zone"
    assert plan.items[5].sql == "'1 day'::interval day to second"


def test_words_of_functions_do_not_end_a_clause() -> None:
    plan = select(
        " SELECT SUBSTRING(note FROM 2 FOR 3) AS s,\n    TRIM(BOTH ' '::text FROM note) AS t,\n"
        "    POSITION(('a'::text) IN (note)) AS p,\n    OVERLAY(note PLACING 'x'::text FROM 1) AS o\n"
        "   FROM shop.sale\n  WHERE (note IS NOT NULL);"
    )
    assert [i.name for i in plan.items] == ["s", "t", "p", "o"]
    assert plan.where == "(note IS NOT NULL)"


def test_extract_has_a_field_that_is_no_column() -> None:
    plan = aggregate(
        " SELECT EXTRACT(year FROM at) AS y,\n    EXTRACT(quarter FROM max(at)) AS q,\n    count(*) AS n\n"
        "   FROM shop.sale\n  GROUP BY (EXTRACT(year FROM at));"
    )
    assert plan.keys == ("EXTRACT(year FROM at)",)
    assert plan.outputs[0].parts == (KeyPlace(0),)
    assert plan.outputs[1].parts == (" EXTRACT(quarter FROM ", CallPlace(0), " ) ")


def test_filter_belongs_to_its_call() -> None:
    plan = aggregate(
        " SELECT customer_id,\n    count(*) FILTER (WHERE (qty > 3)) AS n,\n"
        "    (sum(price) FILTER (WHERE ok) + (1)::numeric) AS s\n   FROM shop.sale\n  GROUP BY customer_id\n"
        " HAVING ((count(*) > 1) AND (sum(qty) IS DISTINCT FROM 3));"
    )
    assert [(c.function, c.argument, c.filter) for c in plan.calls] == [
        ("count", None, "(qty > 3)"),
        ("sum", "price", "ok"),
        ("count", None, None),
        ("sum", "qty", None),
    ]
    assert plan.having == (" (( ", CallPlace(2), " > 1) AND ( ", CallPlace(3), " IS DISTINCT FROM 3)) ")


CASE_KEY = "CASE\n            WHEN (qty > 3) THEN 'big'::text\n            ELSE 'small'::text\n        END"


def test_case_is_a_key_and_may_hold_aggregates() -> None:
    plan = aggregate(
        f" SELECT\n        {CASE_KEY} AS k,\n        CASE\n            WHEN (sum(qty) > 10) THEN 1\n"
        f"            ELSE 0\n        END AS f\n   FROM shop.sale\n  GROUP BY\n        {CASE_KEY};"
    )
    assert plan.keys == (CASE_KEY,)
    assert plan.outputs[0].parts == (KeyPlace(0),)
    assert CallPlace(0) in plan.outputs[1].parts


@pytest.mark.parametrize(
    ("key", "output", "parts"),
    [
        ("((at)::date)", "((at)::date + 1)", (" ( ", KeyPlace(0), " + 1) ")),
        ("((price)::double precision)", "((price)::double precision / x)", None),
        ('(note COLLATE "C")', "((note COLLATE \"C\") || 'x'::text)", None),
        ("tags[1]", "(tags[1] || '!'::text)", None),
        ("(((at AT TIME ZONE 'UTC'::text))::date)", "((at AT TIME ZONE 'UTC'::text))::date", (KeyPlace(0),)),
        ("((qty + 1))", "((qty + 1) * 2)", None),
        ("((qty IS NULL))", "(NOT (qty IS NULL))", None),
        (CASE_KEY, f"({CASE_KEY} || 'x'::text)", None),
        ("COALESCE(qty, 0)", "(COALESCE(qty, 0) + 1)", None),
    ],
)
def test_key_is_found_inside_an_expression(key: str, output: str, parts: tuple[object, ...] | None) -> None:
    wanted = output.replace(" / x)", " / (2)::double precision)")
    plan = aggregate(f"SELECT {wanted} AS k, count(*) AS n FROM shop.sale GROUP BY {key}")
    assert len(plan.keys) == 1
    assert KeyPlace(0) in plan.outputs[0].parts
    if parts is not None:
        assert [str(p).split() for p in plan.outputs[0].parts] == [str(p).split() for p in parts]


def test_part_of_a_longer_type_is_no_key() -> None:
    """The group is read again as a whole instead."""
    plan = block("SELECT (note)::bit varying(5) AS k, count(*) AS n FROM shop.sale GROUP BY ((note)::bit)")
    assert plan.region == ("(note)::bit",)
    assert plan.columns[0].text == ("(note)::bit varying(5)",)


def test_column_that_is_no_key_is_never_guessed() -> None:
    """It stays text over the groups that the query names, for PostgreSQL to say what it is."""
    plan = block("SELECT customer_id, (qty + 1) AS k, count(*) AS n FROM shop.sale GROUP BY customer_id")
    assert plan.region == ("customer_id",)
    assert plain_sql(plan.tail) == " GROUP BY customer_id"


def test_column_that_a_key_decides_is_grouped_by_too() -> None:
    plan = aggregate("SELECT id, (qty + 1) AS k, sum(qty) AS n FROM shop.sale GROUP BY id HAVING note <> ''")
    assert plan.keys == ("id", "qty", "note")
    joined = "FROM (shop.sale s JOIN shop.sale b ON (s.qty = b.id)) GROUP BY"
    assert aggregate(f"SELECT s.id, b.note {joined} s.id, b.id").keys == ("s.id", "b.id", "b.note")
    assert block(f"SELECT s.id, b.note {joined} s.id").region == ("s.id",)


def test_query_over_groups_is_a_layer() -> None:
    plan = aggregate(
        " SELECT k,\n    (n * 2) AS twice\n   FROM ( SELECT sale.customer_id AS k,\n            count(*) AS n\n"
        "           FROM shop.sale\n          GROUP BY sale.customer_id) g\n  WHERE (n > 1);"
    )
    (layer,) = plan.layers
    assert (layer.alias, layer.where) == ("g", "(n > 1)")
    assert output_names(plan) == ("k", "twice")


def test_no_group_by_is_one_group() -> None:
    plan = aggregate("SELECT count(*) AS n, round(avg(price), 2) AS a FROM shop.sale")
    assert plan.keys == ()
    assert plan.outputs[1].parts == (" round( ", CallPlace(1), " , 2) ") or CallPlace(1) in plan.outputs[1].parts


# -- what is not linear


@pytest.mark.parametrize("kind", ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
def test_outer_join_is_a_block_row_by_row(kind: str) -> None:
    plan = block(
        f" SELECT s.id,\n    c.name\n   FROM (shop.sale s\n     {kind} shop.customer c ON ((c.id = s.customer_id)))\n"
        "  WHERE (s.qty > 1);"
    )
    (join,) = plan.trees
    assert isinstance(join, Join)
    assert (join.kind, join.on) == (kind, ("((c.id = s.customer_id))",))
    assert [p.alias for p in from_items(plan)] == ["s", "c"]
    assert (plan.region, plan.where) == (None, ("(s.qty > 1)",))


def test_outer_join_keeps_using() -> None:
    plan = block(" SELECT sale.qty\n   FROM (shop.sale\n     LEFT JOIN shop.customer USING (id));")
    (join,) = plan.trees
    assert isinstance(join, Join)
    assert (join.on, join.using) == (None, "(id)")


def test_groups_over_an_outer_join_are_folded() -> None:
    plan = aggregate(
        "SELECT c.name, count(s.id) AS n FROM (shop.customer c LEFT JOIN shop.sale s ON ((s.customer_id = c.id))) "
        "GROUP BY c.name"
    )
    assert isinstance(plan.input.rows(()), Block)
    assert plan.keys == ("c.name",)


@pytest.mark.parametrize(
    ("condition", "kind", "test"),
    [
        ("(EXISTS ( SELECT 1\n           FROM shop.customer c\n          WHERE (c.id = s.id)))", "exists", None),
        ("(NOT (EXISTS ( SELECT 1\n           FROM shop.customer c)))", "exists", None),
        ("(customer_id IN ( SELECT c.id\n           FROM shop.customer c))", "in", "customer_id"),
        ("(NOT (customer_id IN ( SELECT c.id\n           FROM shop.customer c)))", "in", "customer_id"),
        ("((s.id, s.qty) IN ( SELECT c.id,\n            2\n           FROM shop.customer c))", "in", "(s.id, s.qty)"),
        ("(qty > ANY ( SELECT c.id\n           FROM shop.customer c))", "any", None),
        ("(qty > ALL ( SELECT c.id\n           FROM shop.customer c))", "all", None),
        ("(qty > ( SELECT max(c.id) AS max\n           FROM shop.customer c))", "scalar", None),
        ("(tags = ARRAY( SELECT c.name\n           FROM shop.customer c\n          ORDER BY c.name))", "array", None),
    ],
)
def test_subquery_in_a_condition_has_its_kind(condition: str, kind: str, test: str | None) -> None:
    plan = block(f" SELECT id\n   FROM shop.sale s\n  WHERE {condition};")
    assert plan.region is None
    sub = the_sub(plan)
    assert (sub.kind, sub.test) == (kind, test)
    assert [s.relation.name for s in scans(sub.node)] == ["customer"]


def test_subquery_in_the_select_list_stands_in_its_text() -> None:
    plan = block(
        " SELECT id,\n    (( SELECT max(c.id) AS max\n           FROM shop.customer c) + 1) AS m\n   FROM shop.sale;"
    )
    assert [type(piece) for piece in plan.columns[1].text] == [str, Subquery, str]
    assert the_sub(plan).kind == "scalar"


def test_subquery_stays_open_to_what_is_around_it() -> None:
    """Its FROM is a block's even where it is linear, so that each part can be read in another state."""
    plan = block("SELECT id FROM shop.sale s WHERE (EXISTS ( SELECT 1 FROM shop.customer c WHERE (c.id = s.id)))")
    inner = the_sub(plan).node
    assert isinstance(inner, Block)
    assert inner.where == ("(c.id = s.id)",)


def test_distinct_at_the_top_is_groups_without_calls() -> None:
    plan = aggregate(" SELECT DISTINCT qty,\n    note\n   FROM shop.sale;")
    assert plan.calls == ()
    assert len(plan.keys) == 2
    assert output_names(plan) == ("qty", "note")
    assert [o.parts for o in plan.outputs] == [(KeyPlace(0),), (KeyPlace(1),)]


def test_distinct_below_the_top_is_a_node() -> None:
    plan = block(
        "SELECT c.name FROM (shop.customer c JOIN ( SELECT DISTINCT sale.customer_id FROM shop.sale) d "
        "ON ((d.customer_id = c.id)))"
    )
    assert [type(p.node) for p in from_items(plan)] == [Scan, Distinct]


def test_union_at_the_top_is_distinct_over_union_all() -> None:
    plan = aggregate(" SELECT sale.id\n   FROM shop.sale\nUNION\n SELECT customer.id\n   FROM shop.customer;")
    assert plan.calls == ()
    (united,) = source(plan).members
    assert isinstance(united.node, UnionAll)
    assert output_names(plan) == ("id",)


@pytest.mark.parametrize("word", ["EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL"])
def test_set_operation_keeps_its_word(word: str) -> None:
    plan = plan_of(f" SELECT sale.id\n   FROM shop.sale\n{word}\n SELECT customer.id\n   FROM shop.customer;")
    assert isinstance(plan, SetOperation)
    assert plan.operator == word
    assert [s.relation.name for s in scans(plan)] == ["sale", "customer"]


def test_set_operations_are_read_from_the_left() -> None:
    plan = plan_of(
        "SELECT sale.id FROM shop.sale UNION ALL SELECT customer.id FROM shop.customer EXCEPT SELECT 1 AS id"
    )
    assert isinstance(plan, SetOperation)
    assert isinstance(plan.left, UnionAll)
    nested = plan_of(
        "SELECT sale.id FROM shop.sale UNION ALL ( SELECT customer.id FROM shop.customer EXCEPT SELECT 1 AS id)"
    )
    assert isinstance(nested, Concat)
    assert [type(b) for b in nested.branches] == [Select, SetOperation]


def test_limit_belongs_to_all_rows() -> None:
    plan = block(" SELECT id\n   FROM shop.sale\n  ORDER BY id\n LIMIT 3;")
    assert plan.region == ()
    assert plain_sql(plan.tail) == " ORDER BY id LIMIT 3"
    assert plan.undetermined is None


def test_limit_of_a_set_operation_stands_over_all_of_it() -> None:
    plan = block(
        " SELECT sale.id\n   FROM shop.sale\nUNION ALL\n SELECT customer.id\n   FROM shop.customer\n"
        "  ORDER BY 1\n LIMIT 2;"
    )
    assert isinstance(the_part(plan).node, UnionAll)
    assert (column_names(plan), plan.region, plan.undetermined) == (("id",), (), None)
    assert plain_sql(plan.tail) == " ORDER BY 1 LIMIT 2"


def test_limit_of_a_branch_is_its_own() -> None:
    plan = plan_of(
        " SELECT sale.id\n   FROM shop.sale\nUNION ALL\n( SELECT customer.id\n   FROM shop.customer\n"
        "  ORDER BY customer.id\n LIMIT 2);"
    )
    assert isinstance(plan, Concat)
    assert isinstance(plan.branches[0], Select)
    assert isinstance(plan.branches[1], Block)
    assert plan.branches[1].region == ()


def test_limit_over_distinct_orders_by_place() -> None:
    plan = block(" SELECT DISTINCT qty,\n    note\n   FROM shop.sale\n  ORDER BY note DESC, qty\n LIMIT 2;")
    assert isinstance(the_part(plan).node, Distinct)
    assert plain_sql(plan.tail).split() == ["ORDER", "BY", '"u"."c1"', "DESC,", '"u"."c0"', "LIMIT", "2"]
    assert plan.undetermined is None


def test_distinct_on_is_a_region() -> None:
    plan = block(
        " SELECT DISTINCT ON (customer_id) customer_id,\n    note\n   FROM shop.sale\n"
        "  ORDER BY customer_id, at DESC, id;"
    )
    assert plan.distinct_on is not None
    assert (plan.region, plain_sql(plan.distinct_on)) == (("customer_id",), "customer_id")
    assert plain_sql(plan.tail) == " ORDER BY customer_id, at DESC, id"


@pytest.mark.parametrize(
    ("items", "region"),
    [
        ("count(*) OVER (ORDER BY id) AS r", ()),
        ("rank() OVER (PARTITION BY customer_id ORDER BY qty) AS r", ("customer_id",)),
        (
            "sum(qty) OVER (PARTITION BY customer_id, note) AS a, max(qty) OVER (PARTITION BY note, ok) AS b",
            ("note",),
        ),
        ("sum(qty) OVER (PARTITION BY customer_id) AS a, max(qty) OVER () AS b", ()),
    ],
)
def test_windows_belong_to_what_their_partitions_share(items: str, region: tuple[str, ...]) -> None:
    assert block(f"SELECT id, {items} FROM shop.sale").region == region


def test_grouped_subquery_is_a_part_with_a_region() -> None:
    plan = block(
        " SELECT c.name,\n    g.n\n   FROM (shop.customer c\n     JOIN ( SELECT sale.customer_id,\n"
        "            count(*) AS n\n           FROM shop.sale\n          GROUP BY sale.customer_id) g "
        "ON ((g.customer_id = c.id)));"
    )
    grouped = from_items(plan)[1].node
    assert isinstance(grouped, Block)
    assert (plan.region, grouped.region) == (None, ("sale.customer_id",))
    assert plain_sql(grouped.tail) == " GROUP BY sale.customer_id"


def test_groups_over_groups_fold_the_outer_ones() -> None:
    plan = aggregate(
        " SELECT max(n) AS m\n   FROM ( SELECT sale.customer_id,\n            count(*) AS n\n"
        "           FROM shop.sale\n          GROUP BY sale.customer_id) g;"
    )
    rows = plan.input.rows(())
    assert isinstance(rows, Block)
    inner = the_part(rows).node
    assert isinstance(inner, Block)
    assert inner.region == ("sale.customer_id",)
    assert [c.function for c in plan.calls] == ["max"]


def test_aggregate_that_is_not_known_is_folded_by_its_text() -> None:
    plan = aggregate(" SELECT string_agg(note, ','::text) AS s\n   FROM shop.sale;")
    assert [c.sql for c in plan.calls] == ["string_agg(note, ','::text)"]


def test_rollup_is_a_block_of_the_sets_and_one_of_the_whole() -> None:
    plan = plan_of(" SELECT customer_id,\n    count(*) AS count\n   FROM shop.sale\n  GROUP BY ROLLUP(customer_id);")
    assert isinstance(plan, Concat)
    by_set, whole = plan.branches
    assert isinstance(by_set, Block)
    assert isinstance(whole, Block)
    assert [type(p.node) for p in from_items(by_set)] == [Scan, Values]
    assert by_set.region is not None
    assert len(by_set.region) == 2  # the number of the set, then the key
    assert whole.region == ()


def test_grouping_sets_under_a_window_are_read_whole() -> None:
    plan = block(
        " SELECT customer_id,\n    rank() OVER (ORDER BY (count(*))) AS r\n   FROM shop.sale\n"
        "  GROUP BY ROLLUP(customer_id);"
    )
    assert plan.region == ()
    assert plain_sql(plan.tail) == " GROUP BY ROLLUP(customer_id)"


def test_lateral_may_name_what_is_left_of_it() -> None:
    plan = block(" SELECT s.id,\n    x.v\n   FROM shop.sale s,\n    LATERAL ( SELECT (s.qty + 1) AS v) x;")
    assert [(p.alias, p.is_lateral) for p in from_items(plan)] == [("s", False), ("x", True)]


def test_function_in_from_is_a_call() -> None:
    plan = block(" SELECT s.id,\n    t.x\n   FROM shop.sale s,\n    LATERAL unnest(s.tags) t(x);")
    call = from_items(plan)[1]
    assert call.node is None
    assert (call.alias, call.call, call.is_lateral) == ("t", ("unnest(s.tags) t(x)",), True)


def test_values_are_constant() -> None:
    node = the_part(block(" SELECT a\n   FROM ( VALUES (1), (2)) v(a);")).node
    assert node == Values("VALUES (1), (2)", ("a",))


def test_rows_of_values_with_subqueries_are_selects() -> None:
    node = the_part(block(" SELECT a\n   FROM ( VALUES (1), (( SELECT max(sale.id) AS m FROM shop.sale))) v(a);")).node
    assert isinstance(node, Concat)
    assert column_names(node) == ("a",)
    assert [len(subqueries(c.text)) for b in node.branches if isinstance(b, Block) for c in b.columns] == [0, 1]


def test_rows_from_has_a_from_of_its_own() -> None:
    plan = block(" SELECT f.a\n   FROM shop.sale s,\n    ROWS FROM(unnest(s.tags), generate_series(1, s.qty)) f(a, b);")
    assert [p.alias for p in from_items(plan)] == ["s", "f"]


def test_alias_of_a_join_is_a_subquery_with_its_columns() -> None:
    columns = "i, customer_id, qty, price, at, note, tags, ok, id_1, name, region"
    joined = "(shop.sale s\n     JOIN shop.customer c ON ((c.id = s.customer_id)))"
    plan = select(f" SELECT j.i,\n    j.id_1\n   FROM {joined} j({columns});")
    assert plan.source is not None
    (member,) = plan.source.members
    assert member.alias == "j"
    assert isinstance(member.node, Select)
    shown = {i.name: i.sql for i in member.node.items}
    assert (shown["i"], shown["id_1"], shown["region"]) == ('s."id"', 'c."id"', 'c."region"')


@pytest.mark.parametrize(
    ("key", "defined"),
    [
        ("unnest(tags)", '(unnest(sale."tags"))'),
        ("(qty + ( SELECT count(*) AS n FROM shop.customer c WHERE (c.id = sale.qty)))", '(sale."qty" + ('),
    ],
)
def test_computed_key_of_groups_is_the_column_of_a_lateral_item(key: str, defined: str) -> None:
    plan = plan_of(f" SELECT {key} AS k,\n    count(*) AS n\n   FROM shop.sale\n  GROUP BY ({key});")
    assert isinstance(plan, Aggregate)
    assert isinstance(plan.input.source, tuple)
    item = plan.input.source[-1]
    assert isinstance(item, FromItem)
    assert item.is_lateral
    assert isinstance(item.node, Block)
    assert item.node.columns[0].text[0] == defined
    assert plan.keys == (f'{item.alias}."k0"',)


def test_recursive_query_names_itself_in_a_call() -> None:
    plan = block(
        " WITH RECURSIVE r(n) AS (\n         SELECT sale.id\n           FROM shop.sale\n        UNION\n"
        "         SELECT (r_1.n + 1)\n           FROM r r_1\n          WHERE (r_1.n < 5)\n        )\n"
        " SELECT n\n   FROM r;"
    )
    node = the_part(plan).node
    assert isinstance(node, Recursive)
    assert (node.name, node.operator, node.names) == ('"r"', "UNION", ("n",))
    assert isinstance(node.step, Block)
    assert the_part(node.step).call == ("r r_1",)


def test_recursive_word_alone_makes_nothing_recursive() -> None:
    plan = select(" WITH RECURSIVE r AS (\n SELECT sale.id AS n\n FROM shop.sale\n        )\n SELECT n\n   FROM r;")
    assert isinstance(source(plan).members[0].node, Select)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (" SELECT id\n   FROM shop.sale TABLESAMPLE system (10);", ReasonCode.TABLESAMPLE),
        (" SELECT s.*::shop.sale AS s,\n    s.*\n   FROM shop.sale s;", ReasonCode.WHOLE_ROW),
        (" SELECT j.id\n   FROM (shop.sale s\n     JOIN unnest(ARRAY[1]) u ON (true)) j;", ReasonCode.JOIN_ALIAS),
        (" SELECT u.id\n   FROM (shop.sale\n     JOIN shop.customer USING (id) AS u);", ReasonCode.USING_ALIAS),
        (" SELECT id\n   FROM shop.sale\n FOR UPDATE;", ReasonCode.LOCKS_ROWS),
        (
            " WITH RECURSIVE r(n) AS (\n SELECT 1\nUNION ALL\n SELECT r_1.n\n FROM r r_1\n) "
            "SEARCH DEPTH FIRST BY n SET o\n SELECT n\n   FROM r;",
            ReasonCode.RECURSIVE_CLAUSE,
        ),
    ],
)
def test_what_is_not_maintained_is_refused_by_name(text: str, code: ReasonCode) -> None:
    with pytest.raises(NotDifferentiableError) as caught:
        plan_of(text)
    assert caught.value.reason.code == code


def test_missing_relation_is_the_sources_fault() -> None:
    with pytest.raises(SourceChangedError, match=r"shop\.gone"):
        plan_of("SELECT id FROM shop.gone")


def test_every_scan_has_its_own_number() -> None:
    plan = plan_of("SELECT a.id FROM ((shop.sale a JOIN shop.sale b ON (true)) JOIN shop.big c ON (true))")
    assert [s.relation.name for s in scans(plan)] == ["sale", "sale", "sale"]
    assert_numbers_increase(plan)
