"""How results are told to people; the command line and the demo say it in the same words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol


class Verified(Protocol):
    """What is told of a verification."""

    @property
    def name(self) -> str: ...
    @property
    def ok(self) -> bool: ...
    @property
    def missing(self) -> int: ...
    @property
    def extra(self) -> int: ...
    @property
    def mode(self) -> str: ...


def verify_lines(results: Sequence[Verified]) -> Iterator[str]:
    for result in results:
        if result.ok:
            yield f"ok         {result.name} ({result.mode})"
        else:
            yield f"DIFFERENT  {result.name} ({result.mode}): {result.missing} rows missing, {result.extra} too many"
    good = sum(result.ok for result in results)
    yield f"{good} of {len(results)} stream tables equal their query as PostgreSQL evaluates it"
