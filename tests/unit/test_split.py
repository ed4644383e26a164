"""A load is cut by pages only where each row of its result comes from one row of the table."""

from __future__ import annotations

from itertools import pairwise

import pytest

from pgtrickle.pipeline.engine.split import page_ranges, split

BIG = '"public"."big" AS t'
AGGREGATES = frozenset({"sum", "my_aggregate"})


def cut(load: str, parts: int = 3) -> list[str]:
    return list(split(load, "public", "big", 300, parts, AGGREGATES))


@pytest.mark.parametrize(
    "load",
    [
        f"SELECT q.c0 FROM (SELECT t.a AS c0 FROM {BIG}) AS q",
        f"SELECT q.c0 FROM (SELECT b.a AS c0 FROM (SELECT t.a FROM {BIG}) AS b WHERE b.a > 3) AS q",
        f"SELECT 1 FROM (SELECT t.a FROM {BIG}) AS b JOIN (SELECT t.a FROM public.small AS t) AS s ON s.a = b.a",
        f"SELECT 1 FROM (SELECT t.a FROM public.small AS t) AS s, (SELECT t.a FROM {BIG}) AS b",
        f"SELECT 1 FROM (SELECT t.a FROM {BIG}) AS b LEFT JOIN public.small AS s ON s.a = b.a",
        f"SELECT t.a FROM {BIG} WHERE EXISTS (SELECT FROM public.small AS s WHERE s.a = t.a)",
        f"SELECT 1 FROM ((SELECT t.a FROM {BIG}) AS b JOIN public.small AS s ON s.a = b.a)",
        f"SELECT 1 FROM ((public.y AS y JOIN (SELECT t.a FROM {BIG}) AS b ON true) LEFT JOIN public.x AS x ON true)",
        f"SELECT 1 FROM ((public.x AS x LEFT JOIN public.y AS y ON true) JOIN (SELECT t.a FROM {BIG}) AS b ON true)",
    ],
)
def test_load_is_cut_where_rows_come_one_by_one(load: str) -> None:
    assert len(cut(load)) == 3


@pytest.mark.parametrize(
    "load",
    [
        f"SELECT count(*) FROM {BIG}",
        f"SELECT public.my_aggregate(t.a) FROM {BIG}",
        f"SELECT t.a FROM {BIG} GROUP BY t.a",
        f"SELECT DISTINCT t.a FROM {BIG}",
        f"SELECT DISTINCT ON (t.a) t.a, t.b FROM {BIG} ORDER BY t.a, t.b",
        f"SELECT t.a FROM {BIG} ORDER BY t.a LIMIT 5",
        f"SELECT t.a FROM {BIG} OFFSET 5",
        f"SELECT row_number() OVER (ORDER BY t.a) FROM {BIG}",
        f"SELECT t.a FROM {BIG} UNION ALL SELECT s.a FROM public.small AS s",
        f"SELECT t.a FROM {BIG} EXCEPT SELECT s.a FROM public.small AS s",
        f"SELECT 1 FROM (SELECT t.a FROM {BIG}) AS b JOIN (SELECT t.b FROM {BIG}) AS c ON c.b = b.a",
        f"SELECT 1 FROM public.small AS s LEFT JOIN (SELECT t.a FROM {BIG}) AS b ON s.a = b.a",
        f"SELECT 1 FROM (SELECT t.a FROM {BIG}) AS b RIGHT JOIN public.small AS s ON s.a = b.a",
        f"SELECT 1 FROM (SELECT t.a FROM {BIG}) AS b FULL JOIN public.small AS s ON s.a = b.a",
        f"SELECT 1 FROM public.x AS x LEFT JOIN (public.y AS y JOIN (SELECT t.a FROM {BIG}) AS b ON true) ON true",
        f"SELECT s.a FROM public.small AS s WHERE EXISTS (SELECT FROM {BIG} WHERE t.a = s.a)",
        f"SELECT 1 FROM ((SELECT t.a FROM {BIG}) AS b FULL JOIN public.small AS s ON s.a = b.a)",
        f"SELECT 1 FROM (({BIG} RIGHT JOIN public.small AS s ON true) JOIN public.x AS x ON true)",
        f"SELECT 1 FROM (public.x AS x RIGHT JOIN (public.y AS y JOIN {BIG} ON true) ON true)",
        f"SELECT 1 FROM ((public.y AS y JOIN {BIG} ON true) RIGHT JOIN public.x AS x ON true)",
        f"SELECT 1 FROM (public.x AS x JOIN public.y AS y ON x.a = (SELECT t.a FROM {BIG}))",
        f"SELECT ((SELECT t.a FROM {BIG})) AS a FROM public.x AS x",
        f"SELECT s.a FROM public.small AS s WHERE s.a IN (SELECT t.a FROM {BIG})",
        f"SELECT (SELECT t.a FROM {BIG} WHERE t.a = s.a) FROM public.small AS s",
        f"SELECT s.a FROM public.small AS s JOIN public.x AS x ON EXISTS (SELECT FROM {BIG} WHERE t.a = s.a)",
        f"WITH b AS (SELECT t.a FROM {BIG}) SELECT 1 FROM b AS one, b AS two",
        f"SELECT 1 FROM public.small AS s, LATERAL (SELECT t.a FROM {BIG} LIMIT 1) AS b",
        "SELECT t.a FROM public.small AS t",
        'SELECT t.a FROM "public"."big" AS total',
        f"SELECT '{BIG}' FROM public.small AS s",
        f"this is ((no SQL {BIG}",
    ],
)
def test_load_stays_whole_where_it_is_not_known_to_be_so(load: str) -> None:
    assert cut(load) == [load]


def test_parts_meet_and_are_open_at_the_ends() -> None:
    first, second, third = cut(f"SELECT q.c0 FROM (SELECT t.a AS c0 FROM {BIG}) AS q")
    assert '(SELECT * FROM "public"."big" WHERE ctid < \'(100,0)\'::tid) AS t' in first
    assert "WHERE ctid >= '(100,0)'::tid AND ctid < '(200,0)'::tid) AS t" in second
    assert "WHERE ctid >= '(200,0)'::tid) AS t" in third


@pytest.mark.parametrize(("pages", "parts", "count"), [(0, 4, 1), (1, 4, 1), (3, 4, 3), (1000, 4, 4)])
def test_page_ranges_cover_everything_once(pages: int, parts: int, count: int) -> None:
    ranges = page_ranges(pages, parts)
    assert len(ranges) == count
    assert ranges[0][0] is None
    assert ranges[-1][1] is None
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
