"""LIMIT as PostgreSQL prints it: which numbers are known before the query runs."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.parse.limit_clause import limit_of
from pgtrickle.pipeline.plan.nodes import Values

ROWS = Values("VALUES (1)", ("c0",))


@pytest.mark.parametrize(
    ("clause", "known"),
    [
        ("LIMIT 5", (5, 0, False)),
        ("LIMIT 0", (0, 0, False)),
        ("OFFSET 2\n LIMIT 5", (5, 2, False)),
        ("LIMIT (5)::bigint", (5, 0, False)),
        ("LIMIT '7'::bigint", (7, 0, False)),
        ("OFFSET (2)::bigint\n LIMIT '5000000000'::bigint", (5_000_000_000, 2, False)),
        ("FETCH FIRST (3) ROWS WITH TIES", (3, 0, True)),
        ("OFFSET 2\n FETCH FIRST 3 ROWS WITH TIES", (3, 2, True)),
        ("OFFSET 2", None),
        ("LIMIT ALL", None),
        ("OFFSET 2\n LIMIT ALL", None),
        ("LIMIT (2 + 3)", None),
        ("LIMIT 2.4", None),
        ("LIMIT '-1'::integer", None),
        ("LIMIT '9223372036854775807'::bigint", None),
        ("LIMIT ( SELECT count(*) AS count FROM shop.sale)", None),
    ],
)
def test_numbers_of_a_limit(clause: str, known: tuple[int, int, bool] | None) -> None:
    found = limit_of(ROWS, [(0, "DESC")], clause)
    assert (None if found is None else (found.count, found.offset, found.has_ties)) == known


def test_limit_without_an_order_has_no_first_rows() -> None:
    assert limit_of(ROWS, [], "LIMIT 5") is None
