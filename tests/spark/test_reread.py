"""Groups that lose their extremes are read again: few keys one by one, many by a hash table, most without a filter."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.templates.template import FoldTemplate
from tests.line import Line

QUERY = (
    "SELECT nullif(v % 100, 7) AS g, nullif(v % 3, 1) AS h, max(x) AS most, min(x) AS least, count(DISTINCT s) AS n "
    "FROM t GROUP BY nullif(v % 100, 7), nullif(v % 3, 1)"
)


def test_every_way_to_read_groups_again(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = FoldTemplate.reread_statement

    def noted(self: FoldTemplate, *, may_be_null: bool, whole: bool = False, reads: str = "few") -> str:
        made.append(reads)
        return original(self, may_be_null=may_be_null, whole=whole, reads=reads)

    monkeypatch.setattr(FoldTemplate, "reread_statement", noted)
    line.sql("CREATE TABLE t (id int PRIMARY KEY, v int, x numeric(8, 2), s text)")
    line.sql("INSERT INTO t SELECT i, i % 300, i % 977 + 0.25, 's' || i % 5 FROM generate_series(1, 3000) AS i")
    line.create("st", QUERY, mode="DIFFERENTIAL")
    made.clear()
    for condition in ("v < 3", "v < 40", "v < 290 AND id > 5", "true"):
        line.sql(f"DELETE FROM t WHERE {condition} AND x = (SELECT max(o.x) FROM t AS o WHERE o.v = t.v)")
        line.tick()
        line.check("st")
    assert made == ["few", "many", "most"]
