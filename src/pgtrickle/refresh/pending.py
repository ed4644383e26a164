"""What each source has in each window, asked in one round trip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgtrickle.db.roundtrip import Query, run_queries
from pgtrickle.model.flow import Pending, Window, weight_of
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.model.texts import row_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# A source, a window, and the columns that count: None when every change does.
Wanted = tuple[int, Window, frozenset[int] | None]

MOST_NETTED = 20_000  # to net more rows than this would cost more than it saves
FEWEST_ANALYSED = 300


def read_pending(conn: Connection, wanted: Iterable[Wanted]) -> tuple[dict[Wanted, Pending], dict[int, float]]:
    """Pending changes per (source, window, columns), and the planner's idea of each source's size.

    Changes that leave these columns as they were are none: another reader of the source may want other columns. A
    statement for each source and window, sent together: its text says no window, so the server plans it once.
    """
    windows: dict[tuple[int, Window], dict[frozenset[int] | None, None]] = {}
    for relid, window, columns in wanted:
        windows.setdefault((relid, window), {})[columns] = None
    pending: dict[Wanted, Pending] = {}
    sizes: dict[int, float] = {}
    asks = [Query(_statement(relid, sets), window.parameters()) for (relid, window), sets in windows.items()]
    for ((relid, window), sets), answer in zip(windows.items(), run_queries(conn, asks), strict=True):
        ((count, truncated, size, *matters),) = answer.rows
        sizes[relid] = size or 0.0
        for columns, does in zip(sets, matters, strict=True):
            pending[relid, window, columns] = Pending(count if does else 0, truncated, count == 0, count)
    return pending, sizes


def _statement(relid: int, sets: Iterable[frozenset[int] | None]) -> str:
    """How much there is; and, of the images, unless they are too many to be netted, whether they matter to each."""
    rows = f"{buffer_name(relid)} AS c WHERE {Window.parameterised('c.xid')}"
    listed = "".join(f", c.c{a}" for a in sorted({a for columns in sets for a in columns or ()}))
    return (
        "WITH p AS MATERIALIZED (SELECT count(*) FILTER (WHERE c.action <> 'T') AS n, "
        f"coalesce(bool_or(c.action = 'T'), false) AS t FROM {rows}), "
        f"r AS MATERIALIZED (SELECT c.action{listed} FROM {rows} AND c.action <> 'T' LIMIT {MOST_NETTED}) "
        f"SELECT p.n, p.t, (SELECT greatest(s.reltuples, 0)::float8 FROM pg_class AS s WHERE s.oid = {relid}), "
        f"{', '.join(map(_do_matter, sets))} FROM p"
    )


def _do_matter(columns: frozenset[int] | None) -> str:
    if columns is None:
        return "true"
    group = row_text([f"c.c{a}" for a in sorted(columns)])
    return f"(p.n > {MOST_NETTED} OR EXISTS (SELECT FROM r AS c GROUP BY {group} HAVING sum({weight_of('c')}) <> 0))"


def analyse_buffers(conn: Connection, pending: dict[Wanted, Pending]) -> None:
    """Tells the planner how many rows a window has, where that makes a difference. Takes less than a millisecond each.

    Of a buffer that nobody has analysed it expects one, and joins ten thousand row by row.
    """
    for relid in {relid for (relid, _, _), p in pending.items() if p.rows >= FEWEST_ANALYSED}:
        conn.execute(f"ANALYZE (SKIP_LOCKED) {buffer_name(relid)} (xid)")
