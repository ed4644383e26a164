"""Array parameters as PostgreSQL reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from pgtrickle.db.arrays import literal
from pgtrickle.errors import InvariantError


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "{}"),
        ([None, 1, -2], "{NULL,1,-2}"),
        ([True, False], "{t,f}"),
        ([1.5, float("inf"), float("nan"), Decimal("1.50")], "{1.5,inf,nan,1.50}"),
        (["", "NULL", None], '{"","NULL",NULL}'),
        (["", "NULL"], '{"","NULL"}'),
        ([""], '{""}'),
        ([12, -3], "{12,-3}"),
        (['a"b', "a\\b", "{x, y}", "é\n"], '{"a\\"b","a\\\\b","{x, y}","é\n"}'),
        ([datetime(2026, 1, 2, 3, 4, 5, 6, UTC)], '{"2026-01-02T03:04:05.000006+00:00"}'),
    ],
)
def test_array_is_written_as_the_server_reads_it(values: list[Any], text: str) -> None:
    assert literal(values) == text


def test_value_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InvariantError):
        literal([b"bytes"])
