"""Query -> the statement of each telescoped term. `make golden` rewrites the files; the difference is for review.

A file holds the query as pg_get_viewdef prints it, then what a refresh sends when every table has changed, then the
same query as verification reads it around pending changes.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Aggregate, Item, Select, UnionAll, scans
from pgtrickle.pipeline.render.whole import query_as_of
from tests.golden.shop import plan_of

FOLDER = Path(__file__).parent / "telescoping"
WINDOW = Window(Cut(100, 105, (102,)), Cut(200, 200, ()))
CASES = sorted(p.stem for p in FOLDER.glob("*.sql"))
TERM, AROUND = "-- term ", "-- around pending changes"


def query_in(text: str) -> str:
    return text.partition(TERM)[0].strip()


def generated(query: str) -> str:
    plan = plan_of(query)
    node = _rows(plan) if isinstance(plan, Aggregate) else plan
    assert isinstance(node, Select | UnionAll)
    changed = {s.relation.relid: ChangedSource(s.relation.relid, WINDOW, 7) for s in scans(node)}
    tables = {s.occurrence: s.relation.name for s in scans(node)}
    parts = [query]
    for number, term in enumerate(linear.delta_terms(node, changed), start=1):
        rendered = linear.render(node, term)
        assert rendered.weighted
        shared = ", ".join(f"{n} AS MATERIALIZED ({s})" for n, s in linear.shared_delta_rows(node, term).items())
        sql = _numbered(f"WITH {shared} {rendered.sql}", list(tables))
        parts.append(f"{TERM}{number}: {' and '.join(tables[o] for o in sorted(term.deltas))}\n{_lines(sql)};")
    parts.append(f"{AROUND}\n{_lines(query_as_of(plan, changed))};")
    return "\n\n".join(parts) + "\n"


def _numbered(sql: str, occurrences: list[int]) -> str:
    """Occurrences from 0 on, whatever numbers the parser has given out in between."""
    return re.sub(r'(?<="__pgt_[dn])\d+(?=")', lambda m: str(occurrences.index(int(m[0]))), sql)


def _lines(sql: str) -> str:
    """One clause per line, for whoever reads the difference."""
    return re.sub(r" (?=(FROM|UNION ALL|JOIN|WHERE|GROUP BY|HAVING) )", "\n  ", sql)


def _rows(plan: Aggregate) -> Select:
    arguments = [c.argument for c in plan.calls if c.argument is not None]
    items = [Item(f"k{i}", k) for i, k in enumerate(plan.keys)]
    rows = plan.input.rows((*items, *(Item(f"a{i}", a) for i, a in enumerate(arguments))))
    assert isinstance(rows, Select)
    return rows


@pytest.mark.parametrize("case", CASES)
def test_terms_of_a_query_are_as_recorded(case: str) -> None:
    path = FOLDER / f"{case}.sql"
    recorded = path.read_text()
    fresh = generated(query_in(recorded))
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(fresh)
    else:
        assert fresh == recorded


def test_each_shape_has_a_recording() -> None:
    assert {"filter", "join", "self_join", "union", "union_in_join", "groups", "view", "quoted"} <= set(CASES)
