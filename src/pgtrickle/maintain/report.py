"""Results of verification as text, for the command line and the demo."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pgtrickle.maintain.verify import VerifyResult

_HOW = {
    "quiet": "no changes pending",
    "around": "checked at its snapshot, newer changes excluded",
    "waited": "waited {:.1f} s for a refresh",
}


def verify_lines(results: Sequence[VerifyResult]) -> Iterator[str]:
    for result in results:
        if result.error is not None:
            yield f"BROKEN     {result.name}: {result.error}"
            continue
        detail = f"{result.mode}; {_HOW[result.how].format(result.waited)}"
        if result.against:
            detail += f"; compared with {result.against}"
        if result.note:
            detail += f"; {result.note}"
        if result.ok:
            yield f"ok         {result.name} ({detail})"
        else:
            yield f"DIFFERENT  {result.name} ({detail}): {result.missing} rows missing, {result.extra} extra rows"
            yield from (f"           {sample}" for sample in result.samples)
    if not results:
        yield "this database has no stream tables"
        return
    good = sum(result.ok for result in results)
    yield f"{good} of {len(results)} stream tables equal the result of their query in PostgreSQL"
