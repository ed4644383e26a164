"""Which rows of FROM are determined by some of their columns: by unique keys and equalities."""

from __future__ import annotations

import pytest

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.pipeline.plan.determined import Rows
from pgtrickle.pipeline.plan.nodes import Block, Distinct, FromItem, Join, Node, OutputColumn, Scan
from pgtrickle.pipeline.text.tokens import token_keys, tokenize

INTEGER, TEXT, VARCHAR, TIMESTAMP = 23, 25, 1043, 1114
SETS = frozenset({"unnest"})


def scan(key: tuple[int, ...], *, has_children: bool = False, kind: str = "r") -> Scan:
    typed = {"id": INTEGER, "k": INTEGER, "cur": VARCHAR, "at": TIMESTAMP, "x": TEXT}
    columns = tuple(Column(i, n, n, t, -1, not_null=i in key) for i, (n, t) in enumerate(typed.items(), start=1))
    relation = Relation(1, "s", "t", kind, columns, None, has_children, key)
    return Scan(0, relation, tuple((c.attnum, c.name) for c in columns))


def item(alias: str, node: Node | None = None, *, call: str = "", is_lateral: bool = False) -> FromItem:
    return FromItem(0, node if node is not None or call else scan((1,)), alias, (call,) if call else (), is_lateral)


def is_all(rows: Rows, *given: str) -> bool:
    return rows.determined_by([token_keys(t := tokenize(text), 0, len(t)) for text in given]).is_all


def rows(*trees: FromItem | Join, where: str | None = None, is_open: bool = False) -> Rows:
    return Rows(trees, (where,) if where is not None else None, SETS, is_open)


@pytest.mark.parametrize(
    ("where", "given"),
    [
        (None, ("t.id",)),
        (None, ("id",)),
        ("(t.id = 5)", ()),
        ("(t.id = o.k)", ()),  # o is of the outer query
        ("((t.x = 'a'::text) AND (t.id = (o.k + 1)))", ()),
        ("(t.k = t.id)", ("t.k",)),
        ("((t.id)::bigint = o.b)", ()),
    ],
)
def test_key_that_is_given_or_equal_to_something_fixed(where: str | None, given: tuple[str, ...]) -> None:
    assert is_all(rows(item("t"), where=where), *given)


@pytest.mark.parametrize(
    ("where", "given"),
    [
        (None, ()),
        (None, ("t.k",)),
        ("(t.id > 5)", ()),
        ("((t.id = 5) OR (t.k = 6))", ()),
        ("(NOT (t.id = 5))", ()),
        ("(t.id = ANY (ARRAY[1, 2]))", ()),
        ("(t.id = t.k)", ()),
        ("((t.id)::double precision = o.f)", ()),  # not known to keep values different
        ("(abs(t.id) = 5)", ()),
        ("(t.id = length(t.x))", ("t.x",)),  # equal values of x may have different texts
    ],
)
def test_anything_else_determines_nothing(where: str | None, given: tuple[str, ...]) -> None:
    assert not is_all(rows(item("t"), where=where), *given)


def test_times_that_equal_the_same_instant_are_not_one_time() -> None:
    of_times = item("t", scan((4,)))
    assert not is_all(rows(of_times, where="(t.at = o.instant)"))
    assert is_all(rows(of_times, item("u"), where="(t.at = u.at)"), "u.id")


def test_varchar_is_compared_as_text() -> None:
    assert is_all(rows(item("t", scan((1, 3))), where="((t.cur)::text = o.cur)"), "t.id")


def test_name_without_alias_is_of_the_outer_query_in_a_subquery() -> None:
    assert not is_all(rows(item("t"), is_open=True), "id")


def test_key_of_a_parent_does_not_cover_its_children() -> None:
    assert not is_all(rows(item("t", scan((1,), has_children=True))), "t.id")
    assert is_all(rows(item("t", scan((1,), has_children=True, kind="p"))), "t.id")  # partitions


@pytest.mark.parametrize(
    ("kind", "on", "given", "expected"),
    [
        ("JOIN", "(b.id = a.k)", ("a.id",), True),
        ("JOIN", "(b.id = a.k)", ("b.id",), False),
        ("LEFT JOIN", "(b.id = a.k)", ("a.id",), True),
        ("LEFT JOIN", "(b.id = 5)", ("a.id",), True),  # the same match for each row of a, or none
        ("LEFT JOIN", "(b.id = a.k)", ("a.k",), False),
        ("LEFT JOIN", "(a.id = b.k)", ("b.id",), False),  # a row of a without match has no b.id
        ("RIGHT JOIN", "(a.id = b.k)", ("b.id",), True),
        ("FULL JOIN", "(b.id = a.k)", ("a.id",), False),
        ("FULL JOIN", "(b.id = a.k)", ("a.id", "b.id"), True),
    ],
)
def test_condition_of_a_join(kind: str, on: str, given: tuple[str, ...], expected: bool) -> None:
    assert is_all(rows(Join(kind, item("a"), item("b"), (on,))), *given) is expected


def test_constant_on_the_nullable_side_may_be_null_instead() -> None:
    inner = Join("JOIN", item("b"), item("c"), ("((c.id = 5) AND (b.id = 6))",))
    assert not is_all(rows(Join("FULL JOIN", item("a"), inner, ("(a.k = b.k)",))), "a.k")


def test_columns_of_a_subquery() -> None:
    below = Block((OutputColumn("n", ("t.id",)), OutputColumn("v", ("t.x",))), (item("t"),), None)
    assert is_all(rows(item("s", below)), "s.n")
    assert not is_all(rows(item("s", below)), "s.v")
    several = Block((OutputColumn("n", ("t.id",)), OutputColumn("u", ("unnest(t.x)",))), (item("t"),), None)
    assert not is_all(rows(item("s", several)), "s.n")
    assert is_all(rows(item("s", Distinct(several))), "s.n", "s.u")


def test_rows_of_a_function_are_numbered() -> None:
    numbered = item("u", call="unnest(t.x) WITH ORDINALITY u(v, n)")
    assert is_all(rows(item("t"), numbered), "t.id", "u.n")
    assert not is_all(rows(item("t"), numbered), "t.k", "u.n")
    assert not is_all(rows(item("t"), numbered), "t.id", "u.v")
    assert not is_all(rows(item("t"), item("u", call="unnest(t.x) u(v)")), "t.id", "u.v")
