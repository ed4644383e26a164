"""What each source has in each window, asked in one statement."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgtrickle.model.flow import Pending, Window
from pgtrickle.pipeline.rules.linear import buffer_name

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# A source, a window, and the columns that count: None when every change does.
Wanted = tuple[int, Window, frozenset[int] | None]

MOST_NETTED = 20_000  # to net more rows than this would cost more than it saves
FEWEST_ANALYSED = 300


def read_pending(conn: Connection, wanted: Iterable[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
    """Pending changes per (source, window, columns), and the planner's idea of each source's size.

    Changes that leave these columns as they were are none: another reader of the source may want other columns.
    """
    asked = list(dict.fromkeys(wanted))
    if not asked:
        return {}, {}
    arms = []
    for number, (relid, window, columns) in enumerate(asked):
        rows = f"{buffer_name(relid)} AS c WHERE {window.predicate('c.xid')}"
        number_of = "count(*) FILTER (WHERE c.action <> 'T') AS n, coalesce(bool_or(c.action = 'T'), false) AS t"
        matters = "p.n > 0"
        if columns is not None:
            group = ", ".join(f"c.c{a}::text" for a in sorted(columns)) or "()"
            signed = "sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END)"
            net = f"{rows} AND c.action <> 'T' GROUP BY {group} HAVING {signed} <> 0"
            matters = f"p.n > {MOST_NETTED} OR EXISTS (SELECT FROM {net})"
        size = f"(SELECT greatest(r.reltuples, 0)::float8 FROM pg_class AS r WHERE r.oid = {relid})"
        arms.append(
            f"SELECT {number}, CASE WHEN {matters} THEN p.n ELSE 0 END, p.t, {size}, p.n = 0 "
            f"FROM (SELECT {number_of} FROM {rows}) AS p"
        )
    found = conn.execute(" UNION ALL ".join(arms)).fetchall()
    pending = {asked[number]: Pending(count, truncated, none) for number, count, truncated, _, none in found}
    sizes = {asked[number][0]: size or 0.0 for number, _, _, size, _ in found}
    return pending, sizes


def analyse_buffers(conn: Connection, pending: dict[Wanted, Pending]) -> None:
    """Tells the planner how many rows a window has, where that makes a difference. Takes less than a millisecond each.

    Of a buffer that nobody has analysed it expects one, and joins ten thousand row by row.
    """
    for relid in {relid for (relid, _, _), p in pending.items() if p.rows >= FEWEST_ANALYSED}:
        conn.execute(f"ANALYZE (SKIP_LOCKED) {buffer_name(relid)} (xid)")
