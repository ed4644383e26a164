"""Upstream before downstream."""

from __future__ import annotations

from random import Random

import pytest

from pgtrickle.errors import DefinitionError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.scheduler.graph import levels
from tests.unit.test_decide import stream_table


def names(found: list[list[StreamTable]]) -> list[list[int]]:
    return [[t.pgt_id for t in level] for level in found]


def test_tables_over_plain_tables_share_one_level() -> None:
    tables = [stream_table(2, reads=(900,)), stream_table(1, reads=(901,))]
    assert names(levels(tables)) == [[1, 2]]


def test_table_comes_after_what_it_reads() -> None:
    tables = [stream_table(3, reads=(102, 101)), stream_table(2, reads=(101,)), stream_table(1, reads=(900,))]
    assert names(levels(tables)) == [[1], [2], [3]]


def test_upstream_that_is_not_among_the_tables_does_not_matter() -> None:
    assert names(levels([stream_table(2, reads=(101,))])) == [[2]]


def test_nothing_has_no_levels() -> None:
    assert levels([]) == []


def test_circle_is_refused() -> None:
    with pytest.raises(DefinitionError, match="in a circle"):
        levels([stream_table(1, reads=(102,)), stream_table(2, reads=(101,))])


def test_random_graphs_keep_every_edge_in_order() -> None:
    random = Random(5)
    for _ in range(50):
        reads = {n: {100 + m for m in range(1, n) if random.random() < 0.3} for n in range(1, 12)}
        tables = [stream_table(n, reads=tuple(r)) for n, r in reads.items()]
        random.shuffle(tables)
        found = levels(tables)
        depth = {t.relid: number for number, level in enumerate(found) for t in level}
        assert len(depth) == len(tables)
        assert all(depth[up] < depth[100 + n] for n, ups in reads.items() for up in ups)
