"""Who nets a delta does not matter: the worker, Spark and PostgreSQL have the same result for random deltas."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from pgtrickle.model.flow import Delta
from pgtrickle.pipeline.delta_layout import ROWS, DeltaLayout
from pgtrickle.pipeline.engine.consolidate import consolidate
from pgtrickle.pipeline.engine.frames import DeltaRows, names
from pgtrickle.pipeline.engine.spark import SparkEngine, WorkItem
from tests.conftest import Database

pytestmark = pytest.mark.spark

LAYOUTS = [ROWS, DeltaLayout(every=True), DeltaLayout(1), DeltaLayout(0, 1), DeltaLayout(3, 2), DeltaLayout(2, 2, True)]
KEYS = [
    None,
    "",
    "{}",
    "{NULL}",
    '{"NULL"}',
    "{a}",
    "{A}",
    "{ä}",
    "{\U0001d4b3}",
    "{\ufffd}",
    '{"a b","\\\\x00"}',
    "{1,2}",
]
WEIGHTS = [1, -1, 1, -1, 2, -3]
PLAIN = [None, "0", "-0.00", "1", "-1", "1.5", "1.50", "2.250", "99999999999999999999", "-12345.678901234567890123"]
UNFIT = ["9" * 45 + "." + "9" * 35, "-1" + "0" * 40, "0." + "0" * 29 + "1", "7." + "0" * 40, "721312493602961829630"]
NO_NUMBERS = ["NaN", "Infinity", "-Infinity"]
NUMBERS = {"plain": PLAIN, "unfit": PLAIN + UNFIT, "no number": PLAIN + UNFIT + NO_NUMBERS}
TEXTS = [None, "", "a", "A", "ä", "\U0001d4b3", "\ufffd", "10", "9"]

Found = dict[str | None, tuple[Any, ...]]


def random_rows(
    random: Random, layout: DeltaLayout, numbers: Sequence[str | None], count: int
) -> list[tuple[Any, ...]]:
    orders = [*numbers, "-NaN"] if "NaN" in numbers else list(numbers)
    rows = []
    for _ in range(count):
        row: list[Any] = [random.choice(WEIGHTS), random.choice(KEYS)]
        row += [random.choice(numbers) for _ in range(layout.sums)]
        for _ in range(layout.extremes):
            row += [random.choice(orders), random.choice(TEXTS)]
        rows.append(tuple(row))
    return rows


def by_key(delta: Delta, layout: DeltaLayout) -> Found:
    """The net weight, sums, extremes and whether the group is lost; the order of the keys does not matter."""
    found: Found = {}
    for i, key in enumerate(delta.keys):
        sums = [value for each in delta.sums[: layout.sums] for value in (each.rows[i], each.totals[i])]
        extremes = [value for each in delta.extremes[: layout.extremes] for value in (each.came[i], each.gone[i])]
        found[key] = (delta.weights[i], *sums, *extremes, key in delta.lost)
    assert len(found) == len(delta)
    return found


def by_postgres(database: Database, layout: DeltaLayout, rows: Sequence[tuple[Any, ...]]) -> Found:
    shown = ["sum(w)::int8"]
    lost = ["false"]
    for i in range(layout.sums):
        no_number = f"s{i} IN ('NaN', 'Infinity', '-Infinity')"
        finite = f"CASE WHEN {no_number} THEN '0' ELSE s{i} END::numeric"
        shown.append(f"coalesce(sum(w) FILTER (WHERE s{i} IS NOT NULL), 0)::int8")
        shown.append(f"sum(CASE WHEN w > 0 THEN {finite} ELSE -({finite}) END)")
        lost.append(f"bool_or({no_number}) IS TRUE")
    for i in range(layout.extremes):
        order = f"o{i} <> '-NaN', nullif(o{i}, '-NaN')::numeric, x{i} COLLATE \"C\" NULLS FIRST"
        for side in (">", "<"):
            shown.append(f"(array_agg(x{i} ORDER BY {order}) FILTER (WHERE w {side} 0 AND o{i} IS NOT NULL))[1]")
    columns = names(layout)
    arrays = ", ".join(f"%s::{'int8' if name == 'w' else 'text'}[]" for name in columns)
    having = "HAVING sum(w) <> 0" if layout == ROWS else ""
    values = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in columns]
    found = database.sql(
        f"SELECT k, {', '.join(shown)}, {' OR '.join(lost)} FROM unnest({arrays}) AS d({', '.join(columns)}) "
        f"GROUP BY k {having}",
        *values,
    )
    return {key: tuple(rest) for key, *rest in found}


def exact(found: Found) -> Found:
    """Without the display scale of numbers, which is not compared."""
    return {k: tuple(v.normalize() if isinstance(v, Decimal) and not v else v for v in row) for k, row in found.items()}


@pytest.mark.parametrize("values", NUMBERS)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_worker_spark_and_postgresql_agree(
    engine: SparkEngine, database: Database, layout: DeltaLayout, values: str
) -> None:
    random = Random(f"{layout} {values}")
    for count in (random.randrange(2, 12), random.randrange(60, 200)):
        rows = random_rows(random, layout, NUMBERS[values], count)
        here = exact(by_key(consolidate(DeltaRows(layout, rows)), layout))
        (delta,) = engine.run([WorkItem(layout, DeltaRows(layout, rows))])
        assert here == exact(by_key(delta, layout))
        assert here == exact(by_postgres(database, layout, rows))


def test_a_wave_of_all_layouts_agrees(engine: SparkEngine) -> None:
    """One job for all: the wider layout keeps rows that cancel out, which the apply ignores."""
    random = Random(38)
    deltas = [DeltaRows(each, random_rows(random, each, NUMBERS["no number"], 80)) for each in LAYOUTS]
    deltas.append(DeltaRows(DeltaLayout(2, 1), []))
    before = engine.jobs
    netted = engine.run([WorkItem(each.slots, each) for each in deltas])
    assert engine.jobs == before + 1
    for each, delta in zip(deltas, netted, strict=True):
        found = exact(by_key(delta, each.slots))
        if each.slots == ROWS:
            found = {key: row for key, row in found.items() if row[0]}
        assert exact(by_key(consolidate(each), each.slots)) == found
