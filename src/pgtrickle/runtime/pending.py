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
    windows: dict[tuple[int, Window], set[int]] = {}
    for relid, window, columns in asked:
        windows.setdefault((relid, window), set()).update(columns or ())
    shared = [_window(number, *key, columns) for number, (key, columns) in enumerate(windows.items())]
    numbers = {key: number for number, key in enumerate(windows)}
    arms = [
        f"SELECT {position}, {_that_matter(columns, numbers[relid, window])}, p.t, p.size, p.n = 0 "
        f"FROM p{numbers[relid, window]} AS p"
        for position, (relid, window, columns) in enumerate(asked)
    ]
    found = conn.execute(f"WITH {', '.join(shared)} {' UNION ALL '.join(arms)}").fetchall()
    pending = {asked[number]: Pending(count, truncated, none) for number, count, truncated, _, none in found}
    sizes = {asked[number][0]: size or 0.0 for number, _, _, size, _ in found}
    return pending, sizes


def _window(number: int, relid: int, window: Window, columns: Iterable[int]) -> str:
    """Read once for all its readers: how much there is, and the images, unless they are too many to be netted."""
    rows = f"{buffer_name(relid)} AS c WHERE {window.predicate('c.xid')}"
    listed = "".join(f", c.c{a}" for a in sorted(columns))
    return (
        f"p{number} AS MATERIALIZED (SELECT count(*) FILTER (WHERE c.action <> 'T') AS n, "
        "coalesce(bool_or(c.action = 'T'), false) AS t, "
        f"(SELECT greatest(r.reltuples, 0)::float8 FROM pg_class AS r WHERE r.oid = {relid}) AS size FROM {rows}), "
        f"r{number} AS MATERIALIZED (SELECT c.action{listed} FROM {rows} AND c.action <> 'T' LIMIT {MOST_NETTED})"
    )


def _that_matter(columns: frozenset[int] | None, number: int) -> str:
    if columns is None:
        return "p.n"
    group = ", ".join(f"c.c{a}::text" for a in sorted(columns)) or "()"
    signed = "sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END)"
    net = f"SELECT FROM r{number} AS c GROUP BY {group} HAVING {signed} <> 0"
    return f"CASE WHEN p.n > {MOST_NETTED} OR EXISTS ({net}) THEN p.n ELSE 0 END"


def analyse_buffers(conn: Connection, pending: dict[Wanted, Pending]) -> None:
    """Tells the planner how many rows a window has, where that makes a difference. Takes less than a millisecond each.

    Of a buffer that nobody has analysed it expects one, and joins ten thousand row by row.
    """
    for relid in {relid for (relid, _, _), p in pending.items() if p.rows >= FEWEST_ANALYSED}:
        conn.execute(f"ANALYZE (SKIP_LOCKED) {buffer_name(relid)} (xid)")
