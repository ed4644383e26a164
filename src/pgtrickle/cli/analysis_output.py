"""What `pgtrickle plan --analyze` prints for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_ENGINES = {"postgres": "PostgreSQL", "spark": "Spark"}
_NOTES = {
    "postgres": "ms: of an operator with its inputs",
    "spark": "ms: of an operator's tasks, added up; operators within generated code share its time; the aggregates at "
    "the top count the rows",
}
_HEAD = f"    {'rows':>12} {'ms':>12}  operator"


def analysis_lines(analysis: Mapping[str, Any]) -> Iterator[str]:
    yield f"{analysis['table']}: a refresh was computed in each way and not applied"
    for way in analysis["ways"]:
        title = f"{way['mode']} on {_ENGINES[way['engine']]}"
        if "why_not" in way:
            yield f"{title}: not possible now: {way['why_not']}"
            continue
        parts = ", ".join(f"{name} {ms:.1f} ms" for name, ms in way["parts_ms"].items())
        yield f"{title}: {way['rows']} rows; {parts}"
        yield f"{_HEAD} ({_NOTES[way['engine']]})"
        yield from _operators(way["plan"], 0)


def _operators(plan: Mapping[str, Any], depth: int) -> Iterator[str]:
    rows = "-" if plan["rows"] is None else str(plan["rows"])
    ms = "-" if plan["ms"] is None else f"{plan['ms']:.1f}"
    yield f"    {rows:>12} {ms:>12}  {'  ' * depth}{plan['operator']}"
    for child in plan["inputs"]:
        yield from _operators(child, depth + 1)
