# ruff: noqa: E501 - an expression is easier to read on one line
"""The columns in an expression of a virtual generated column are qualified, and nothing else."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.parse.virtual_columns import qualified


@pytest.mark.parametrize(
    ("expression", "names", "expected"),
    [
        ("((price * (qty)::numeric))::numeric(8,2)", ("price", "qty"), "((t.price * (t.qty)::numeric))::numeric(8,2)"),
        ("(lower(lower) || 'lower'::text)", ("lower",), "(lower(t.lower) || 'lower'::text)"),
        ('("Odd ""x" + odd)', ('Odd "x',), '(t."Odd ""x" + odd)'),
        ('(("from" || text) || (a)::text)', ("from", "text", "a"), '((t."from" || t.text) || (t.a)::text)'),
        ("CASE WHEN (a > 0) THEN 1 ELSE NULL::integer END", ("a", "case"), "CASE WHEN (t.a > 0) THEN 1 ELSE NULL::integer END"),
        ("date_trunc('hour'::text, day)", ("day", "hour"), "date_trunc('hour'::text, t.day)"),
    ],
)  # fmt: skip
def test_columns_are_qualified(expression: str, names: tuple[str, ...], expected: str) -> None:
    assert qualified(expression, names, "t") == expected
