"""Planned or applied changes of one database: data that is compared, printed and written as JSON."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pgtrickle.definitions.definition import Option

CREATE, ALTER, REPLACE, DROP, ADOPT = "create", "alter", "replace", "drop", "adopt"
STREAM_TABLE, REFRESH_GROUP = "stream table", "refresh group"


@dataclass(frozen=True, slots=True)
class OptionChange:
    """None: not set."""

    option: str
    before: Option | None
    after: Option | None


@dataclass(frozen=True, slots=True)
class Change:
    """One change. Queries are as PostgreSQL parses them, so that blanks and comments make no difference."""

    action: str
    name: str
    kind: str = STREAM_TABLE
    file: str | None = None
    options: tuple[OptionChange, ...] = ()
    query_before: str | None = None
    query_after: str | None = None
    mode: str | None = None
    reason: str | None = None

    def query_diff(self) -> Iterator[str]:
        """Unified diff; empty if the query is unchanged."""
        if self.query_before is None or self.query_before == self.query_after:
            return
        yield from difflib.unified_diff(
            _lines(self.query_before), _lines(self.query_after), "now", self.file or "file", lineterm="", n=2
        )

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        values["options"] = {o.option: {"before": o.before, "after": o.after} for o in self.options}
        return values


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """The result for one database. `left` are stream tables of the set that no file defines any more."""

    database: str
    changes: tuple[Change, ...] = ()
    unchanged: int = 0
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    transient: bool = False
    applied: bool = False

    @property
    def status(self) -> str:
        if self.errors:
            return "failed"
        if not self.changes:
            return "unchanged"
        return "applied" if self.applied else "planned"

    def as_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "status": self.status,
            "errors": list(self.errors),
            "changes": [change.as_json() for change in self.changes],
            "unchanged": self.unchanged,
            "not_defined": list(self.left),
            "warnings": list(self.warnings),
        }


def _lines(query: str | None) -> list[str]:
    return (query or "").strip("\n").split("\n")
