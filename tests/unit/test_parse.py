"""From texts that pg_get_viewdef printed (PostgreSQL 18, not pretty) to plan nodes."""

from __future__ import annotations

import pytest

from pgtrickle.errors import NotDifferentiableError, SourceChangedError
from pgtrickle.pipeline.nodes import Aggregate, CallPlace, From, KeyPlace, Scan, Select, UnionAll, scans
from pgtrickle.pipeline.parse import output_names, parse
from tests.golden.shop import AGGREGATES, RELATIONS, find, plan_of


def select(text: str) -> Select:
    plan = plan_of(text)
    assert isinstance(plan, Select)
    return plan


def aggregate(text: str) -> Aggregate:
    plan = plan_of(text)
    assert isinstance(plan, Aggregate)
    return plan


def source(plan: Select | Aggregate) -> From:
    assert plan.source is not None
    return plan.source


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
    plan = parse("SELECT name FROM shop.customer", find, {2: frozenset({2})}, AGGREGATES)
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
    assert [s.occurrence for s in scans(plan)] == [0, 1, 2, 3]


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
    assert [s.occurrence for s in scans(plan)] == [0, 1]


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
    with pytest.raises(NotDifferentiableError, match="could not be matched with a grouping key"):
        plan_of("SELECT (note)::bit varying(5) AS k, count(*) AS n FROM shop.sale GROUP BY ((note)::bit)")


def test_column_that_is_no_key_is_never_guessed() -> None:
    with pytest.raises(NotDifferentiableError, match="qty outside an aggregate"):
        plan_of("SELECT (qty + 1) AS k, count(*) AS n FROM shop.sale GROUP BY customer_id")


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            " SELECT s.id\n   FROM (shop.sale s\n     LEFT JOIN shop.customer c ON ((c.id = s.customer_id)));",
            "LEFT JOIN",
        ),
        (" SELECT DISTINCT qty\n   FROM shop.sale;", "DISTINCT"),
        (" SELECT id\n   FROM shop.sale\n  ORDER BY id\n LIMIT 3;", "LIMIT"),
        (" SELECT sale.id\n   FROM shop.sale\nEXCEPT\n SELECT customer.id\n   FROM shop.customer;", "EXCEPT"),
        (" SELECT sale.id\n   FROM shop.sale\nUNION\n SELECT customer.id\n   FROM shop.customer;", "UNION without ALL"),
        (" WITH RECURSIVE r AS (\n SELECT 1 AS n\n        )\n SELECT n\n   FROM r;", "RECURSIVE"),
        (" SELECT s.id,\n    x.v\n   FROM shop.sale s,\n    LATERAL ( SELECT (s.qty + 1) AS v) x;", "LATERAL"),
        (" SELECT g\n   FROM generate_series(1, 3) g(g);", "function in FROM"),
        (" SELECT customer_id,\n    count(*) AS count\n   FROM shop.sale\n  GROUP BY ROLLUP(customer_id);", "ROLLUP"),
        (" SELECT string_agg(note, ','::text) AS s\n   FROM shop.sale;", "string_agg"),
        (" SELECT a\n   FROM ( VALUES (1), (2)) v(a);", "VALUES"),
        (
            " SELECT c.name,\n    g.n\n   FROM (shop.customer c\n     JOIN ( SELECT sale.customer_id,\n"
            "            count(*) AS n\n           FROM shop.sale\n          GROUP BY sale.customer_id) g "
            "ON ((g.customer_id = c.id)));",
            "join with an aggregated subquery",
        ),
        (" SELECT id\n   FROM shop.sale TABLESAMPLE system (10);", "TABLESAMPLE"),
        (
            " SELECT max(n) AS m\n   FROM ( SELECT sale.customer_id,\n            count(*) AS n\n"
            "           FROM shop.sale\n          GROUP BY sale.customer_id) g;",
            "aggregate over an aggregate",
        ),
        (" SELECT count(*) OVER (ORDER BY id) AS r\n   FROM shop.sale;", "window functions"),
    ],
)
def test_what_is_not_maintained_is_refused_by_name(text: str, reason: str) -> None:
    with pytest.raises(NotDifferentiableError, match=reason):
        plan_of(text)


def test_missing_relation_is_the_sources_fault() -> None:
    with pytest.raises(SourceChangedError, match=r"shop\.gone"):
        plan_of("SELECT id FROM shop.gone")


def test_every_scan_has_its_own_number() -> None:
    plan = plan_of("SELECT a.id FROM ((shop.sale a JOIN shop.sale b ON (true)) JOIN shop.big c ON (true))")
    assert [s.occurrence for s in scans(plan)] == [0, 1, 2]
    assert all(isinstance(s, Scan) for s in scans(plan))
    assert len(RELATIONS) == 6
