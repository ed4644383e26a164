"""Expressions that become columns of an input. Their values: tests/spark/test_nexmark_on_spark.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import sqlglot

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.expressions import PgType
from pgtrickle.pipeline.expressions.types import INT4, TEXT
from pgtrickle.pipeline.relational import CompiledQuery, InputColumn, StoredColumn, compile_query, stored_column
from pgtrickle.pipeline.relational.algebra import free
from pgtrickle.pipeline.relational.source_text import remember, text_over

TABLES: dict[tuple[str, str], Sequence[InputColumn] | str] = {
    ("public", "t"): [
        InputColumn("a", INT4),
        InputColumn('S "x"', TEXT),
        InputColumn("j", None, label="json"),
        InputColumn("jb", PgType("jsonb")),
    ],
    ("public", "u"): [InputColumn("a", INT4), InputColumn("b", TEXT)],
    ("public", "v"): "SELECT (t.jb ->> 'k'::text) AS k FROM public.t",
}
TYPES = {"->>": (25, "text"), "::integer": (23, "integer"), "~": (16, "boolean"), "->": (3802, "jsonb")}


class Asked:
    """Types of expressions by the operator in them, the outermost first; none is immutable that calls random()."""

    def __init__(self) -> None:
        self.expressions: list[str] = []

    def __call__(self, schema: str, name: str, expression: str) -> StoredColumn | None:
        assert (schema, name) in TABLES
        self.expressions.append(expression)
        sqlglot.parse_one(expression, read="postgres")
        if "random" in expression:
            return None
        oid, shown = next(v for k, v in sorted(TYPES.items(), key=lambda i: -expression.rfind(i[0])) if k in expression)
        return stored_column(SqlType(oid, -1, shown, oid, "b"), collation="C")


def compiled(sql: str, asked: Asked | None = None) -> CompiledQuery:
    made = compile_query(sql, lambda schema, name: TABLES[schema, name], collation="C", computed=asked or Asked())
    assert not free(made.rows.relation)
    return made


def computed(sql: str) -> list[str]:
    made = compiled(sql).computed
    return sorted(column.expression for columns in made.values() for column in columns)


@pytest.mark.parametrize(
    ("sql", "expressions"),
    [
        ("SELECT (t.a + 1) AS x FROM public.t", []),
        ("SELECT (x.jb ->> 'k'::text) AS k FROM public.t x", ["\"jb\" ->> 'k'::text"]),
        ("SELECT (x.j ->> 'k'::text) AS k FROM public.t x", ["\"j\" ->> 'k'::text"]),
        ("SELECT ((x.jb -> 'a'::text) ->> 'b'::text) AS k FROM public.t x", ["(\"jb\" -> 'a'::text) ->> 'b'::text"]),
        ('SELECT x.a FROM public.t x WHERE (x."S ""x""" ~ \'^a\'::text)', ['"S ""x""" ~ \'^a\'::text']),
        # What Spark evaluates stays there: only the smallest part that it does not is asked for.
        (
            "SELECT count(*) AS n FROM public.t GROUP BY (((t.jb ->> 'k'::text) || 'x'::text))",
            ["\"jb\" ->> 'k'::text"],
        ),
        (
            "SELECT t.a FROM (public.t JOIN public.u ON ((u.b = (t.jb ->> 'k'::text)))) WHERE (u.b ~ 'x'::text)",
            ["\"b\" ~ 'x'::text", "\"jb\" ->> 'k'::text"],
        ),
        ("SELECT v.k FROM public.v", ["\"jb\" ->> 'k'::text"]),
        (
            "SELECT u.a FROM public.u WHERE (EXISTS (SELECT 1 FROM public.t WHERE ((t.jb ->> 'k'::text) = u.b)))",
            ["\"jb\" ->> 'k'::text"],
        ),
        # Subqueries in FROM pass columns on, to any depth.
        (
            "SELECT (d.x ->> 'k'::text) AS k FROM (SELECT e.jb AS x, e.a FROM (SELECT t.jb, t.a FROM public.t) e "
            "WHERE (e.a > 0)) d WHERE ((d.x -> 'a'::text) ->> 'b'::text) = 'c'::text",
            ["\"jb\" ->> 'k'::text", "(\"jb\" -> 'a'::text) ->> 'b'::text"],
        ),
        (
            "SELECT (d.jb ->> 'k'::text) AS k, count(*) AS n FROM (SELECT t.jb, u.b FROM (public.t LEFT JOIN public.u "
            "ON ((u.a = t.a)))) d GROUP BY (d.jb ->> 'k'::text), (d.b ~ 'x'::text)",
            ["\"b\" ~ 'x'::text", "\"jb\" ->> 'k'::text"],
        ),
        ("SELECT max((t.jb ->> 'k'::text)) FILTER (WHERE (t.a > 0)) AS m FROM public.t", ["\"jb\" ->> 'k'::text"]),
    ],
)
def test_the_smallest_expression_that_spark_does_not_evaluate_is_a_column(sql: str, expressions: list[str]) -> None:
    assert computed(sql) == expressions


def test_the_same_expression_has_one_name_in_all_queries() -> None:
    first, second = (
        compiled(sql).computed["public", "t"]
        for sql in (
            "SELECT (t.jb ->> 'k'::text) AS k FROM public.t",
            "SELECT x.a FROM (public.t x JOIN public.t y ON (((x.jb ->> 'k'::text) = (y.jb ->> 'k'::text))))",
        )
    )
    assert [c.name for c in first] == [c.name for c in second]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ((random())::text ~ u.b) AS x FROM public.u",  # not immutable
        "SELECT (t.jb ? u.b) AS x FROM public.t, public.u",  # of two inputs
        "SELECT (q.m ~ 'x'::text) AS x FROM (SELECT max(u.b) AS m FROM public.u) q",  # of no input
        "SELECT (u.b ~ 'x'::text) AS x FROM public.u GROUP BY u.b",  # of a group
        "SELECT (d.b ~ 'x'::text) AS x FROM (SELECT DISTINCT u.b FROM public.u) d",  # of one of several equal rows
        "SELECT (d.b ~ 'x'::text) AS x FROM (SELECT u.b FROM public.u UNION ALL SELECT u.b FROM public.u) d",
    ],
)
def test_other_expressions_are_refused(sql: str) -> None:
    with pytest.raises(SparkUnsupportedError):
        compiled(sql)


@pytest.mark.parametrize(
    ("sql", "wanted"),
    [
        ("SELECT lower((t.s)::text) AS x FROM t", 'lower(("s")::text)'),
        ("SELECT (t.d)::timestamp without time zone AS x FROM t", '("d")::timestamp without time zone'),
        ("SELECT (t.a ~~ '%''x'::text) AS x FROM t", "\"a\" ~~ '%''x'::text"),
        ("SELECT EXTRACT(hour FROM t.z) AS x FROM t", 'EXTRACT(hour FROM "z")'),
    ],
)
def test_the_text_is_postgresql_s(sql: str, wanted: str) -> None:
    tree = remember(sqlglot.parse_one(sql, read="postgres"), sql)
    part = tree.expressions[0].this.unnest()
    names = {c: f'"{c.name}"' for c in part.find_all(sqlglot.exp.Column)}
    assert text_over(part, names) == wanted
