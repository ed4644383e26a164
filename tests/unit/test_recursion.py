"""The change of WITH RECURSIVE: for which queries it comes from the stored rows, and what it is made of."""

from __future__ import annotations

import pytest

from pgtrickle.model.catalog import Column
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.differentiate.recursion import RecursionPlan, recursion_plan
from pgtrickle.pipeline.plan.nodes import Aggregate, Block
from pgtrickle.pipeline.plan.shapes import output_names
from pgtrickle.pipeline.templates.explain import explain
from pgtrickle.pipeline.templates.recursive import RecursionTemplate
from pgtrickle.pipeline.templates.stages import refresh_stages
from pgtrickle.pipeline.templates.template import Template
from tests.golden.shop import compile_plan, plan_of

WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
SALE, CUSTOMER = ({n: ChangedSource(n, WINDOW, 4)} for n in (1, 2))
FIRST, STEP = (
    "SELECT c.id, c.name FROM shop.customer c",
    "SELECT s.id, s.note FROM (r r_1 JOIN shop.sale s ON ((s.qty = r_1.a)))",
)


def query(first: str = FIRST, word: str = "UNION", step: str = STEP, outer: str = "SELECT b, a FROM r") -> str:
    return f"WITH RECURSIVE r(a, b) AS ({first} {word} {step}) {outer}"


def walk(text: str) -> RecursionPlan | None:
    plan = plan_of(text)
    assert not isinstance(plan, Aggregate)
    return recursion_plan(plan)


def compiled(text: str, typid: int = 23) -> Template:
    plan = plan_of(text)
    columns = [Column(i, n, "integer", typid, -1) for i, n in enumerate(output_names(plan), start=1)]
    return compile_plan(plan, columns, lambda _: ())


def leaf(word: str, changed: dict[int, ChangedSource]) -> str:
    template = compiled(query(word=word))
    assert isinstance(template, RecursionTemplate)
    return template.delta_statement(changed)


def test_walk_knows_where_its_columns_are_and_how_steps_find_rows() -> None:
    found = walk(query())
    assert found is not None
    assert (found.columns, found.keys, found.self_item.alias) == ((1, 0), ("a",), "r_1")
    template = compiled(query())
    assert isinstance(template, RecursionTemplate)
    assert template.lookups == ("a",)


@pytest.mark.parametrize(
    ("step", "keys"),
    [
        ("SELECT s.id, s.note FROM (shop.sale s JOIN r ON (((r.b = s.note) AND (r.a = s.id))))", ("b", "a")),
        ("SELECT s.id, s.note FROM (shop.sale s JOIN r ON (((r.b = s.note) AND (s.id = (r.a + 1)))))", ("b",)),
        ("SELECT s.id, s.note FROM r, shop.sale s WHERE ((s.qty > 1) AND (s.qty = r.a))", ("a",)),
        ("SELECT s.id, a FROM (r JOIN shop.sale s(a) USING (a))", ("a",)),
    ],
)
def test_keys_are_what_an_equality_compares_with_a_table(step: str, keys: tuple[str, ...]) -> None:
    found = walk(query(step=step))
    assert found is not None
    assert found.keys == keys


@pytest.mark.parametrize(
    "text",
    [
        query(outer="SELECT a FROM r"),  # a column is not stored
        query(outer="SELECT a, (b || 'x') AS b FROM r"),
        query(outer="SELECT a, b FROM r WHERE (a > 1)"),
        query(outer="SELECT r.a, r.b FROM (r JOIN shop.sale s ON ((s.id = r.a)))"),
        query(step="SELECT s.id, s.note FROM (r JOIN shop.sale s ON ((s.qty > r.a)))"),  # nothing to find rows by
        query(step="SELECT s.id, s.note FROM (r LEFT JOIN shop.sale s ON ((s.qty = r.a)))"),
        query(step="SELECT s.id, s.note FROM (r JOIN ( SELECT * FROM shop.sale) s ON ((s.qty = r.a)))").replace(
            "SELECT * FROM", "SELECT sale.id, sale.qty, sale.note FROM"
        ),
        query(step=f"{STEP} WHERE (EXISTS ( SELECT 1 FROM shop.customer c WHERE (c.id = s.id)))"),
        query(step="SELECT s.id, s.note FROM r, shop.sale s, LATERAL unnest(s.tags) t(x) WHERE (s.qty = r.a)"),
        query(step=STEP.replace("SELECT", "SELECT DISTINCT")),
        query(step="SELECT (r.a + 1), r.b FROM r WHERE (r.a < 3)"),  # a set that no table leads through
    ],
)
def test_other_recursions_are_evaluated_whole(text: str) -> None:
    assert walk(text) is None
    assert "evaluated whole, before and after" in "\n".join(explain(refresh_stages(compiled(text)))["tree"])


def test_counter_needs_no_stored_rows_where_rows_are_not_compared() -> None:
    text = query(word="UNION ALL", step="SELECT (r.a + 1), r.b FROM r WHERE (r.a < 3)")
    found = walk(text)
    assert found is not None
    assert found.keys == ()


def test_type_without_a_hash_is_evaluated_whole() -> None:
    assert not isinstance(compiled(query(), typid=1560), RecursionTemplate)


def test_explanation_says_that_it_goes_from_the_stored_rows() -> None:
    assert "what changes lead to, from the stored rows" in "\n".join(explain(refresh_stages(compiled(query())))["tree"])


def test_paths_are_taken_away_over_kept_rows_and_added_over_new_ones() -> None:
    sql = leaf("UNION ALL", SALE)
    assert sql.count("WITH RECURSIVE") == 2
    gone, come = sql.split("WITH RECURSIVE")[1:]
    assert "least(sum(b.n), sum(b.m))" in sql  # kept: what there was and still is
    assert '"__pgt_now"' in gone
    assert '"__pgt_now"' not in come.partition(" UNION ALL (SELECT s.id")[2]


def test_changed_first_rows_alone_ask_for_no_stored_row_of_paths() -> None:
    sql = leaf("UNION ALL", CUSTOMER)
    assert "FROM shop.stored" in sql
    assert all("WHERE false" in part for part in sql.split("FROM shop.stored")[1:])


def test_rows_in_doubt_are_looked_for_again() -> None:
    sql = leaf("UNION", SALE)
    assert sql.count("WITH RECURSIVE") == 2
    assert "s.__pgt_id NOT IN (SELECT g.__pgt_id FROM" in sql
    assert "NOT EXISTS (SELECT FROM (SELECT" in sql


def test_step_keeps_the_rest_of_its_text() -> None:
    found = walk(query(step=f"{STEP} WHERE (s.price > 1.5)"))
    assert found is not None
    assert isinstance(found.step, Block)
    template = compiled(query(step=f"{STEP} WHERE (s.price > 1.5)"))
    assert template.delta_statement(SALE).count("(s.price > 1.5)") >= 4
