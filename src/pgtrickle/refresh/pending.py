"""Counts the changes of each source in each window, in one round trip."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pgtrickle.db.roundtrip import Query, run_queries
from pgtrickle.model.flow import Pending, Window, weight_of
from pgtrickle.model.identifiers import buffer_name
from pgtrickle.model.texts import row_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# A source, a window, and the relevant columns; None: every change is relevant.
WindowQuery = tuple[int, Window, frozenset[int] | None]

MOST_NETTED = 20_000  # netting more rows would cost more than it saves
FEWEST_ANALYSED = 300
FEW_ROWS = 10_000  # changes up to which an index scan is preferred to reading a whole table


def read_pending(
    conn: Connection, queries: Iterable[WindowQuery]
) -> tuple[dict[WindowQuery, Pending], dict[int, float]]:
    """Pending changes per (source, window, columns), and the planner's estimate of each source's size.

    Changes that do not change these columns are not counted: another reader of the source may use other columns. One
    statement per source and window, sent together; the window is a parameter, so the server plans it once.
    """
    windows: dict[tuple[int, Window], dict[frozenset[int] | None, None]] = {}
    for relid, window, columns in queries:
        windows.setdefault((relid, window), {})[columns] = None
    pending: dict[WindowQuery, Pending] = {}
    sizes: dict[int, float] = {}
    statements = [Query(_statement(relid, sets), window.parameters()) for (relid, window), sets in windows.items()]
    for ((relid, window), sets), answer in zip(windows.items(), run_queries(conn, statements), strict=True):
        ((count, truncated, size, *matters),) = answer.rows
        sizes[relid] = size or 0.0
        for columns, is_relevant in zip(sets, matters, strict=True):
            pending[relid, window, columns] = Pending(count if is_relevant else 0, truncated, count == 0, count)
    return pending, sizes


def _statement(relid: int, sets: Iterable[frozenset[int] | None]) -> str:
    """Counts the changes and, unless there are too many to net, finds out for each reader whether they are relevant."""
    rows = f"{buffer_name(relid)} AS c WHERE {Window.parameterised('c.xid')}"
    listed = "".join(f", c.c{a}" for a in sorted({a for columns in sets for a in columns or ()}))
    return (
        "WITH p AS MATERIALIZED (SELECT count(*) FILTER (WHERE c.action <> 'T') AS n, "
        f"coalesce(bool_or(c.action = 'T'), false) AS t FROM {rows}), "
        f"r AS MATERIALIZED (SELECT c.action{listed} FROM {rows} AND c.action <> 'T' LIMIT {MOST_NETTED}) "
        f"SELECT p.n, p.t, (SELECT greatest(s.reltuples, 0)::float8 FROM pg_class AS s WHERE s.oid = {relid}), "
        f"{', '.join(map(_is_relevant, sets))} FROM p"
    )


def _is_relevant(columns: frozenset[int] | None) -> str:
    if columns is None:
        return "true"
    group = row_text([f"c.c{a}" for a in sorted(columns)])
    return f"(p.n > {MOST_NETTED} OR EXISTS (SELECT FROM r AS c GROUP BY {group} HAVING sum({weight_of('c')}) <> 0))"


def analyse_buffers(conn: Connection, pending: dict[WindowQuery, Pending]) -> None:
    """Analyses buffers with large windows, so that the planner knows their size. Takes less than a millisecond each.

    For a buffer without statistics the planner expects one row, and uses nested loops for ten thousand.
    """
    for relid in {relid for (relid, _, _), p in pending.items() if p.rows >= FEWEST_ANALYSED}:
        conn.execute(f"ANALYZE (SKIP_LOCKED) {buffer_name(relid)} (xid)")


def expect_few(conn: Connection) -> None:
    """For the rest of the transaction, the planner assumes that pages are in memory, as most pages with changed rows
    are. With the default cost of random access it prefers a hash join over 100,000 rows to 1,500 index lookups, which
    takes six times as long.
    """
    cost = "least(current_setting('random_page_cost')::float8, 1.1)::text"
    conn.execute(f"SELECT set_config('random_page_cost', {cost}, true)")
