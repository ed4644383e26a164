"""One statement that detects what happened since a cut: sources with changes, and events of stream tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.model.flow import Cut
from pgtrickle.model.identifiers import buffer_name

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

MOST_SOURCES = 1_000  # in one statement: each takes a lock, and a server has some thousands of them

_SEEN = "(xid >= %(xmax)s::text::xid8 OR xid = ANY (%(open)s::text[]::xid8[]))"


@dataclass(frozen=True, slots=True)
class DetectedChanges:
    """What became visible between two cuts. `events`: (pgt_id or None for all, what)."""

    cut: Cut
    changed: tuple[int, ...]
    events: tuple[tuple[int | None, str], ...]


class Detector:
    """Queries the same sources in every tick with the same text, so that the server keeps its plan."""

    def __init__(self, relids: Sequence[int]) -> None:
        chunks = [relids[i : i + MOST_SOURCES] for i in range(0, len(relids), MOST_SOURCES)] or [()]
        self._statements = [_statement(chunk, with_events=number == 0) for number, chunk in enumerate(chunks)]

    @property
    def statements(self) -> int:
        return len(self._statements)

    def look(self, conn: Connection, since: Cut) -> DetectedChanges:
        """The cut is that of the first statement: later changes that the others see are detected again, which is
        harmless."""
        params = {"xmax": str(since.xmax), "open": [str(x) for x in since.open_xids]}
        rows = [conn.execute(text, params).fetchone() for text in self._statements]
        first = rows[0]
        assert first is not None
        changed = tuple(relid for row in rows if row is not None for relid in row[1] or ())
        events = tuple((i or None, what) for i, what in zip(first[2] or (), first[3] or (), strict=True))
        return DetectedChanges(Cut.parse(first[0]), changed, events)


def _statement(relids: Sequence[int], *, with_events: bool) -> str:
    arms = [f"SELECT {r:d}::int8 WHERE EXISTS (SELECT FROM {buffer_name(r)} WHERE {_SEEN})" for r in relids]
    changed = f"ARRAY({' UNION ALL '.join(arms)})" if arms else "NULL::int8[]"
    events = "NULL::int8[], NULL::text[]"
    source = ""
    if with_events:
        events = "e.ids, e.whats"
        source = (
            " FROM (SELECT array_agg(coalesce(pgt_id, 0)) AS ids, array_agg(what) AS whats "
            f"FROM pgtrickle.pgt_events WHERE {_SEEN}) AS e"
        )
    return f"SELECT pg_current_snapshot()::text, {changed}, {events}{source}"
