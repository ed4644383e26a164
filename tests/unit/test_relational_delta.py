"""The shape of deltas; their rows: tests/spark/test_relational_delta.py."""

from __future__ import annotations

from collections import Counter

import pytest

from pgtrickle.pipeline.expressions.types import INT4
from pgtrickle.pipeline.relational import InputColumn, compile_query
from pgtrickle.pipeline.relational.algebra import Relation, Scan, children, columns, free

T, U = ("public", "t"), ("public", "u")
COLUMNS = [InputColumn("a", INT4), InputColumn("b", INT4)]


def scans(relation: Relation) -> Counter[tuple[str, str]]:
    """How often each state of each table is read; what several operators share counts once."""
    found: Counter[tuple[str, str]] = Counter()
    seen: set[int] = set()
    waiting = [relation]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, Scan):
            found[part.name, part.state] += 1
        waiting += children(part)
    return found


def read(sql: str, *changed: tuple[str, str]) -> dict[tuple[str, str], int]:
    compiled = compile_query(sql, lambda _schema, _name: COLUMNS)
    delta = compiled.delta(frozenset(changed))
    assert delta is not None
    assert not free(delta.rows.relation)
    assert delta.weight in columns(delta.rows.relation)
    assert {c for _, c in delta.rows.columns} <= set(columns(delta.rows.relation))
    return dict(scans(delta.rows.relation))


@pytest.mark.parametrize(
    ("sql", "changed", "wanted"),
    [
        ("SELECT t.a FROM public.t WHERE (t.b > 1)", [T], {("t", "changes"): 1}),
        (
            "SELECT t.a FROM (public.t JOIN public.u ON ((t.a = u.a)))",
            [T, U],
            {("t", "changes"): 1, ("u", "new"): 1, ("t", "old"): 1, ("u", "changes"): 1},
        ),
        ("SELECT t.a FROM (public.t JOIN public.u ON ((t.a = u.a)))", [T], {("t", "changes"): 1, ("u", "new"): 1}),
        ("SELECT t.a FROM (public.t LEFT JOIN public.u ON ((t.a = u.a)))", [T], {("t", "changes"): 1, ("u", "new"): 1}),
        (
            "SELECT t.a FROM public.t WHERE (EXISTS (SELECT 1 FROM public.u WHERE (u.a = t.a)))",
            [U],
            {("t", "old"): 1, ("u", "changes"): 1, ("u", "new"): 1, ("u", "old"): 1},
        ),
        (
            "SELECT t.a, count(*) AS n FROM public.t GROUP BY t.a",
            [T],
            {("t", "changes"): 1, ("t", "new"): 1, ("t", "old"): 1},
        ),
        ("SELECT count(*) AS n FROM public.t", [T], {("t", "new"): 1, ("t", "old"): 1}),
        ("SELECT t.a FROM public.t UNION ALL SELECT u.a FROM public.u", [U], {("u", "changes"): 1}),
    ],
)
def test_each_operator_reads_the_states_of_its_rule(
    sql: str, changed: list[tuple[str, str]], wanted: dict[tuple[str, str], int]
) -> None:
    assert read(sql, *changed) == wanted


def test_a_query_that_reads_nothing_changed_has_no_delta() -> None:
    compiled = compile_query("SELECT t.a FROM public.t", lambda _schema, _name: COLUMNS)
    assert compiled.delta(frozenset({U})) is None


def test_a_delta_of_many_operators_is_that_of_the_whole_query() -> None:
    values = ", ".join(
        f"( SELECT max(u.b) AS m FROM public.u WHERE (u.a < t.{c})) AS m{i}" for i, c in enumerate("abab")
    )
    sql = f"SELECT t.a, {values} FROM public.t"
    assert set(read(sql, T, U)) == {("t", "new"), ("t", "old"), ("u", "new"), ("u", "old")}
