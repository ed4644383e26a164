"""Which conditions are nothing but `x IN (subquery)`: they are asked for x alone, so nothing beside may be lost."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.plan.keyed import is_in_condition
from pgtrickle.pipeline.plan.nodes import Subquery, Values

ASKED = Subquery(Values("VALUES (1)", ("a",)), "in", "x.a")
LOWER = Subquery(Values("VALUES (1)", ("a",)), "in", "(lower(x.a) || 'b'::text)")


@pytest.mark.parametrize(
    ("before", "sub", "after", "answer"),
    [
        ("(x.a IN (", ASKED, "))", True),
        ("((x.a IN (", ASKED, ")))", True),
        ("((lower(x.a) || 'b'::text) IN ( ", LOWER, "))", True),
        ("((x.a = 1) OR (x.a IN (", ASKED, ")))", False),
        ("((x.a IS NULL) = (x.a IN (", ASKED, ")))", False),
        ("(NOT (x.a IN (", ASKED, ")))", False),
        ("(x.a IN (", ASKED, ")) IS TRUE", False),
    ],
)
def test_condition_is_all_of_it_only_when_nothing_stands_beside(
    before: str, sub: Subquery, after: str, answer: bool
) -> None:
    assert is_in_condition((before, sub, after), sub) is answer
