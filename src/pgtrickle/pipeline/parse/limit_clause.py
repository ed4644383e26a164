"""ORDER BY and LIMIT as values: number of rows, offset, sort columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgtrickle.pipeline.plan.nodes import Limit, Node

# As PostgreSQL prints them. Other forms (an expression, ALL, no count) are unknown before execution.
_NUMBER = r"(?:\(?([0-9]+)\)?|'([0-9]+)')(?:::(?:bigint|integer))?"
_CLAUSE = re.compile(rf"(?:OFFSET {_NUMBER} ?)?(?:LIMIT {_NUMBER}|FETCH FIRST {_NUMBER} ROWS (WITH TIES))")
_MOST = 1 << 40  # rows; an upper limit, so that sums of such numbers fit


def limit_of(rows: Node, order: Sequence[tuple[int, str]], clause: str) -> Limit | None:
    """None if the number of rows is not constant, or without ORDER BY."""
    match = _CLAUSE.fullmatch(" ".join(clause.split()))
    if match is None or not order:
        return None
    offset, count = (int(n) for n in (_first(match, 1, 2) or "0", _first(match, 3, 4, 5, 6) or "0"))
    if offset + count > _MOST:
        return None
    return Limit(rows, tuple(order), count, offset, match[7] is not None, clause)


def _first(match: re.Match[str], *groups: int) -> str | None:
    return next((match[g] for g in groups if match[g] is not None), None)
