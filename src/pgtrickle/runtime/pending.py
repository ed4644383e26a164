"""What each source has in each window, asked in one statement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgtrickle.model.flow import Pending, Window
from pgtrickle.pipeline.rules.linear import buffer_name

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

Wanted = tuple[int, Window]


def read_pending(conn: Connection, wanted: Iterable[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
    """Pending changes per (source, window), and the planner's idea of each source's size."""
    pairs = list(dict.fromkeys(wanted))
    if not pairs:
        return {}, {}
    arms = [
        f"SELECT {number}, count(*) FILTER (WHERE c.action <> 'T'), coalesce(bool_or(c.action = 'T'), false), "
        f"(SELECT greatest(r.reltuples, 0)::float8 FROM pg_class AS r WHERE r.oid = {relid}) "
        f"FROM {buffer_name(relid)} AS c WHERE {window.predicate('c.xid')}"
        for number, (relid, window) in enumerate(pairs)
    ]
    rows = conn.execute(" UNION ALL ".join(arms)).fetchall()
    pending = {pairs[number]: Pending(count, truncated) for number, count, truncated, _ in rows}
    sizes = {pairs[number][0]: size or 0.0 for number, _, _, size in rows}
    return pending, sizes
