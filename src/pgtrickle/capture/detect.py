"""One statement that detects what happened since a cut: sources with changes, events of stream tables, and changes of
the catalog rows of watched objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.model.flow import Cut, not_seen
from pgtrickle.model.identifiers import buffer_name

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

MOST_SOURCES = 1_000  # in one statement: each takes a lock, and a server has some thousands of them

_NOT_SEEN = not_seen("xid", "%(xmax)s::text", "%(open)s::text[]")
# A transaction may have ended since the cut.
_HAS_MOVED = "pg_snapshot_xmax(pg_current_snapshot())::text <> %(xmax)s::text OR %(open)s::text[] <> '{}'"


@dataclass(frozen=True, slots=True)
class DetectedChanges:
    """What became visible between two cuts. `events`: (pgt_id or None for all, what).

    `catalog_total`: see CatalogWatch.total. None: no transaction has ended, so the catalog is unchanged.
    """

    cut: Cut
    changed: tuple[int, ...]
    events: tuple[tuple[int | None, str], ...]
    catalog_total: int | None


class Detector:
    """Queries the same sources in every tick with the same text, so that the server keeps its plan.

    `catalog_query`: CatalogWatch.query.
    """

    def __init__(self, relids: Sequence[int], catalog_query: str | None = None) -> None:
        chunks = [relids[i : i + MOST_SOURCES] for i in range(0, len(relids), MOST_SOURCES)] or [()]
        first, *others = chunks
        self._statements = [_first_statement(first, catalog_query), *map(_statement, others)]

    @property
    def statements(self) -> int:
        return len(self._statements)

    def detect(self, conn: Connection, since: Cut) -> DetectedChanges:
        """The cut is that of the first statement: later changes that the others see are detected again, which is
        harmless."""
        params = {"xmax": str(since.xmax), "open": [str(x) for x in since.open_xids]}
        rows = [conn.execute(text, params).fetchone() for text in self._statements]
        first = rows[0]
        assert first is not None
        changed = tuple(relid for row in rows if row is not None for relid in row[1] or ())
        events = tuple((i or None, what) for i, what in zip(first[2] or (), first[3] or (), strict=True))
        return DetectedChanges(Cut.parse(first[0]), changed, events, first[4])


def _statement(relids: Sequence[int]) -> str:
    """Has the columns of the first statement that all need: the cut and the changed sources."""
    arms = [f"SELECT {r:d}::int8 WHERE EXISTS (SELECT FROM {buffer_name(r)} WHERE {_NOT_SEEN})" for r in relids]
    changed = f"ARRAY({' UNION ALL '.join(arms)})" if arms else "NULL::int8[]"
    return f"SELECT pg_current_snapshot()::text, {changed}"


def _first_statement(relids: Sequence[int], catalog_query: str | None) -> str:
    total = "NULL::int8"
    if catalog_query is not None:
        total = f"CASE WHEN {_HAS_MOVED} THEN {catalog_query} END"
    return (
        f"{_statement(relids)}, e.ids, e.whats, {total} "
        "FROM (SELECT array_agg(coalesce(pgt_id, 0)) AS ids, array_agg(what) AS whats "
        f"FROM pgtrickle.pgt_events WHERE {_NOT_SEEN}) AS e"
    )
