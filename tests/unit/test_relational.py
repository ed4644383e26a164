"""The compiler's types and refusals; results are compared with PostgreSQL's in tests/spark/test_relational.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pgtrickle.errors import DefinitionError, SparkUnsupportedError
from pgtrickle.pipeline.expressions import PgType
from pgtrickle.pipeline.expressions.types import INT4, INT8, NUMERIC, numeric
from pgtrickle.pipeline.relational import InputColumn, compile_query
from pgtrickle.pipeline.relational.algebra import Join, Relation, children, free

TEXT = PgType("text", collation="C")
TABLES: dict[tuple[str, str], Sequence[InputColumn] | str] = {
    ("public", "t"): [
        InputColumn("a", INT4),
        InputColumn("b", INT8),
        InputColumn("n", numeric(10, 2)),
        InputColumn("x", NUMERIC),
        InputColumn("s", TEXT),
        InputColumn("e", PgType("text", collation="en_US")),
        InputColumn("f", PgType("float8")),
        InputColumn("d", PgType("date")),
        InputColumn("o", PgType("bool")),
        InputColumn("j", None, label="json"),
        InputColumn("jb", PgType("jsonb")),
    ],
    ("public", "u"): [InputColumn("a", INT4), InputColumn("c", TEXT), InputColumn("N", INT4)],
    ("other", "t"): [InputColumn("z", INT4)],
    ("public", "v"): "SELECT t.a AS first, (t.n * (2)::numeric) AS second FROM public.t WHERE (t.a > 0)",
}


def compiled(sql: str, *, collation: str = "C") -> dict[str, str]:
    query = compile_query(sql, lambda schema, name: TABLES[schema, name], collation=collation)
    assert not free(query.rows.relation)
    return {c.name: c.type.name for c in query.columns}


@pytest.mark.parametrize(
    ("sql", "types"),
    [
        ("SELECT t.a, (t.a + t.b) AS s FROM public.t", {"a": "int4", "s": "int8"}),
        ("SELECT t.a FROM other.t t_1, public.t", {"a": "int4"}),
        ('SELECT u."N" AS "N", u.a AS n FROM public.u', {"N": "int4", "n": "int4"}),
        ("SELECT v.first, v.second FROM public.v", {"first": "int4", "second": "numeric"}),
        ("SELECT q.x FROM ( VALUES (1,'a'::text), (2,NULL::text)) q(x, y)", {"x": "int4"}),
        ("SELECT 1 AS one", {"one": "int4"}),
        ("SELECT 'a' AS one", {"one": "text"}),
        ("SELECT a FROM (public.t FULL JOIN public.u USING (a))", {"a": "int4"}),
        (
            "SELECT count(*) AS c, sum(t.a) AS i, sum(t.b) AS l, avg(t.a) AS v FROM public.t",
            "int8 int8 numeric numeric",
        ),
        ("SELECT min(t.n) AS m, max(t.d) AS d, bool_and(t.o) AS o FROM public.t", "numeric date bool"),
        ("SELECT t.s, GROUPING(t.s) AS g FROM public.t GROUP BY ROLLUP(t.s)", {"s": "text", "g": "int4"}),
        ("SELECT row_number() OVER (ORDER BY t.a) AS r, ntile(3) OVER (ORDER BY t.a) AS n FROM public.t", "int8 int4"),
        ("SELECT t.a FROM public.t UNION ALL SELECT t.b FROM public.t", {"a": "int8"}),
        ("SELECT t.a FROM public.t EXCEPT SELECT u.a FROM public.u", {"a": "int4"}),
        ("SELECT (EXISTS ( SELECT 1 FROM public.u WHERE (u.a = t.a))) AS e FROM public.t", {"e": "bool"}),
        ("SELECT ( SELECT max(u.c) AS max FROM public.u WHERE (u.a = t.a)) AS m FROM public.t", {"m": "text"}),
        ("SELECT q.k FROM public.t, LATERAL ( SELECT (t.a + u.a) AS k FROM public.u) q", {"k": "int4"}),
        ("WITH w AS ( SELECT t.a FROM public.t ) SELECT w.a FROM w, w w_1", {"a": "int4"}),
        ("SELECT DISTINCT ON (t.a) t.a, t.s FROM public.t ORDER BY t.a, t.s", {"a": "int4", "s": "text"}),
        ("SELECT (t.n / (3)::numeric) AS q FROM public.t", {"q": "numeric"}),
        (
            "WITH RECURSIVE r(x) AS ( SELECT 1 UNION SELECT (r_1.x + 1) FROM r r_1 WHERE (r_1.x < 9)) SELECT x FROM r",
            {"x": "int4"},
        ),
    ],
)
def test_the_result_has_postgresql_s_types(sql: str, types: dict[str, str] | str) -> None:
    found = compiled(sql)
    assert (found == types) if isinstance(types, dict) else (" ".join(found.values()) == types)


@pytest.mark.parametrize(
    ("sql", "construct"),
    [
        ("SELECT t.j FROM public.t", "a column of type json"),
        ("SELECT DISTINCT t.jb FROM public.t", "operator = (jsonb, jsonb)"),
        ("SELECT count(*) AS c FROM public.t GROUP BY t.jb", "operator = (jsonb, jsonb)"),
        ("SELECT count(DISTINCT t.jb) AS c FROM public.t", "operator = (jsonb, jsonb)"),
        ("SELECT rank() OVER (PARTITION BY t.jb) AS r FROM public.t", "operator = (jsonb, jsonb)"),
        ("SELECT sum(t.f) AS s FROM public.t", "sum (float8)"),
        ("SELECT avg(t.f) AS s FROM public.t", "avg (float8)"),
        ("SELECT min(t.e) AS s FROM public.t", "min (text)"),
        ("SELECT stddev(t.f) AS s FROM public.t", "aggregate stddev_samp (float8)"),
        ("SELECT array_agg(t.a) AS s FROM public.t", "aggregate array_agg (int4)"),
        ("SELECT string_agg(t.s, ','::text) AS s FROM public.t", "string_agg"),
        ("SELECT string_agg(t.s, ','::text ORDER BY t.a) AS s FROM public.t", "string_agg"),
        ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t.f) AS s FROM public.t", "percentile_cont WITHIN GROUP"),
        ("SELECT t.a FROM public.t ORDER BY t.e LIMIT 1", "ORDER BY (text)"),
        ("SELECT t.a FROM public.t LIMIT (1 + 1)", "LIMIT of an expression"),
        ("SELECT t.a FROM public.t FOR UPDATE", "LOCKS"),
        ("SELECT t.a FROM public.t TABLESAMPLE system (10)", "sample in FROM"),
        ("SELECT x.a FROM ROWS FROM(generate_series(1, 2)) x(a)", "ROWS FROM"),
        ("SELECT g.g FROM pg_stat_get_activity(NULL::integer) g", "a function in FROM"),
        (
            "SELECT sum(t.a) OVER (ORDER BY t.s RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM public.t",
            "RANGE with an offset",
        ),
        ("SELECT count(DISTINCT ROW(t.a, t.b)) AS c FROM public.t", "function row (int4, int8)"),
        ("SELECT (t.a)::regclass AS c FROM public.t", "the type REGCLASS"),
        ("SELECT pg_backend_pid() AS c FROM public.t", "function pg_backend_pid ()"),
        ("SELECT now() AS c FROM public.t", "current_timestamp in CURRENT_TIMESTAMP"),
        ("DELETE FROM public.t", "a statement that is not a query"),
    ],
)
def test_a_refusal_names_the_construct(sql: str, construct: str) -> None:
    with pytest.raises(SparkUnsupportedError) as refused:
        compiled(sql)
    assert refused.value.construct == construct, refused.value
    assert isinstance(refused.value, DefinitionError)


def test_text_is_ordered_only_under_collations_by_code_point() -> None:
    sql = "SELECT (('a'::text || u.c) < 'b'::text) AS x, ('a'::text < 'b'::text) AS y FROM public.u"
    assert compiled(sql, collation="C.UTF-8") == {"x": "bool", "y": "bool"}
    with pytest.raises(SparkUnsupportedError):
        compiled(sql, collation="en_US.UTF-8")


def joins(relation: Relation) -> list[str]:
    own = [relation.kind] if isinstance(relation, Join) else []
    return own + [kind for child in children(relation) for kind in joins(child)]


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("EXISTS ( SELECT 1 FROM public.u WHERE (u.a = t.a))", "semi"),
        ("NOT (EXISTS ( SELECT 1 FROM public.u WHERE ((u.a = t.a) AND (u.c = 'x'::text))))", "anti"),
        ("t.a IN ( SELECT u.a FROM public.u)", "semi"),
        ("NOT (t.a IN ( SELECT u.a FROM public.u))", "anti"),
        ("t.a > ALL ( SELECT u.a FROM public.u)", "anti"),
    ],
)
def test_a_condition_about_a_subquery_is_one_join(condition: str, kind: str) -> None:
    """Not one with the distinct values of the outer rows besides."""
    query = compile_query(f"SELECT t.a FROM public.t WHERE ({condition})", lambda s, n: TABLES[s, n])
    assert joins(query.rows.relation) == [kind]


def test_an_aggregate_that_is_correlated_by_equality_is_one_join() -> None:
    sql = "SELECT t.a FROM public.t WHERE (t.a < ( SELECT avg(u.a) AS avg FROM public.u WHERE (u.a = t.a)))"
    query = compile_query(sql, lambda s, n: TABLES[s, n])
    assert joins(query.rows.relation) == ["left"]


def test_the_relations_that_are_read_are_known() -> None:
    sql = "SELECT v.first FROM public.v, other.t WHERE (EXISTS ( SELECT 1 FROM public.u))"
    query = compile_query(sql, lambda s, n: TABLES[s, n])
    assert query.inputs == {("public", "t"), ("other", "t"), ("public", "u")}
