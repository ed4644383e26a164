"""The rows of groups are added up by PostgreSQL before they travel, where there are many: the same sums, fewer rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.pipeline.templates.template import ADDED_FROM
from tests.line import Line

pytestmark = pytest.mark.spark

MANY = 4 * ADDED_FROM
GROUPS = 5
QUERY = """
    SELECT g, count(*) AS n, count(a) AS some, sum(a) AS a, sum(b) AS b, avg(m) AS m,
           sum(m) FILTER (WHERE a > 10) AS few, sum(u) AS u, array_agg(DISTINCT b % 3) AS thirds
    FROM item GROUP BY g
"""


@pytest.fixture
def items(line: Line) -> Line:
    """NULLs in any of the columns, in any combination; keys that are NULL; numbers of all sizes."""
    line.sql(
        f"""
        CREATE TABLE item (id int PRIMARY KEY, g text, a int, b bigint, m numeric(12, 2), u numeric);
        INSERT INTO item SELECT i, nullif('g' || i % {GROUPS}, 'g0'), nullif(i % 7, 3), nullif(i % 4, 1) * 4000000000,
            nullif(i % 11, 0) / 4.0, nullif(i % 3, 2) * 1.5
        FROM generate_series(1, {2 * MANY}) AS i;
        """
    )
    return line


def leaf_rows(line: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many delta rows each stream table has in the next tick."""
    found: list[int] = []
    run = engine.run

    def counted(work: Sequence[Any]) -> Any:
        found.extend(len(item.delta_rows) for item in work)
        return run(work)

    monkeypatch.setattr(engine, "run", counted)
    monkeypatch.setattr("pgtrickle.pipeline.engine.netting.NETTED_HERE_ROWS", 0)
    line.tick()
    monkeypatch.undo()
    return found


def test_many_changes_of_few_groups_are_few_rows(
    items: Line, engine: SparkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    items.create("sums", "SELECT g, count(*) AS n, sum(id) AS s FROM item GROUP BY g", mode="DIFFERENTIAL")
    items.sql("UPDATE item SET id = -id WHERE id <= %s", MANY)
    assert leaf_rows(items, engine, monkeypatch) == [2 * GROUPS]
    items.check("sums")


def test_sums_counts_and_groups_that_are_read_again_are_exact(items: Line) -> None:
    items.create("sums", QUERY, mode="DIFFERENTIAL")
    items.sql("UPDATE item SET a = nullif(a, 1), b = nullif(id, 9), m = m + 0.25 WHERE id <= %s", MANY)
    items.tick()
    items.check("sums")
    items.sql("UPDATE item SET g = nullif('g' || id %% 3, 'g2'), a = NULL, u = u + 0.125 WHERE id > %s", MANY)
    items.tick()
    items.check("sums")
    items.sql("DELETE FROM item WHERE g = 'g1' OR id % 2 = 0")
    items.tick()
    items.check("sums")


def test_a_sum_over_a_join_is_exact(items: Line) -> None:
    items.sql(
        "CREATE TABLE label (g text PRIMARY KEY, name text); "
        "INSERT INTO label SELECT 'g' || i, i % 2 FROM generate_series(1, 4) AS i"
    )
    items.create(
        "named",
        "SELECT l.name, sum(i.b) AS b, count(*) AS n FROM item AS i JOIN label AS l USING (g) GROUP BY 1",
        mode="DIFFERENTIAL",
    )
    items.sql("UPDATE item SET b = b + 1 WHERE id <= %s", MANY)
    items.sql("UPDATE label SET name = 'other' WHERE g = 'g2'; DELETE FROM label WHERE g = 'g3'")
    items.tick()
    items.check("named")


def test_a_sum_without_a_group_is_exact(items: Line) -> None:
    items.create("total", "SELECT count(*) AS n, sum(b) AS b, sum(u) AS u FROM item", mode="DIFFERENTIAL")
    items.sql("DELETE FROM item WHERE id <= %s", MANY)
    items.tick()
    items.check("total")
    items.sql("TRUNCATE item")
    items.tick()
    items.equal("total")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_groups_with_what_no_difference_undoes_are_read_again(items: Line, value: str) -> None:
    items.create("total", "SELECT g, sum(u) AS u FROM item GROUP BY g", mode="DIFFERENTIAL")
    items.sql("UPDATE item SET u = %s WHERE id <= %s", value, MANY)
    items.tick()
    items.check("total")
    items.sql("UPDATE item SET u = 1 WHERE id <= %s", MANY)
    items.tick()
    items.check("total")
