"""SQL over buffers: which rows lie between two cuts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.identifiers import buffer_name


def window_predicate(since: str, upto: str, xid: str = "xid") -> str:
    """The rows visible in `upto` and not in `since`; both are SQL expressions of type pg_snapshot."""
    return (
        f"{xid} >= pg_catalog.pg_snapshot_xmin({since}) AND {xid} < pg_catalog.pg_snapshot_xmax({upto}) "
        f"AND pg_catalog.pg_visible_in_snapshot({xid}, {upto}) "
        f"AND NOT pg_catalog.pg_visible_in_snapshot({xid}, {since})"
    )


def changes(relid: int, window: Window, columns: Sequence[int]) -> str:
    """The signed images of a window: weight, then the columns by attribute number."""
    listed = "".join(f", b.c{a:d}" for a in columns)
    return (
        f"SELECT CASE b.action WHEN 'I' THEN 1 ELSE -1 END AS weight{listed} "
        f"FROM {buffer_name(relid)} AS b WHERE b.action <> 'T' AND {window.predicate('b.xid')}"
    )


def pending_statement(wanted: Sequence[tuple[int, Cut]]) -> str:
    """One statement for many (source, cut of a reader): what each has not seen yet.

    Returns position in `wanted`, source, rows, whether it was truncated, max LSN. What is visible to the statement is
    committed, so only the lower end needs a test.
    """
    arms = []
    for position, (relid, cut) in enumerate(wanted):
        seen = f"b.xid >= '{cut.xmax:d}'::xid8"
        if cut.open_xids:
            seen = f"({seen} OR b.xid = ANY ('{{{','.join(map(str, cut.open_xids))}}}'::xid8[]))"
        arms.append(
            f"SELECT {position}, {relid:d}::int8, count(*) FILTER (WHERE b.action <> 'T'), "
            f"coalesce(bool_or(b.action = 'T'), false), max(b.lsn)::text FROM {buffer_name(relid)} AS b WHERE {seen}"
        )
    return " UNION ALL ".join(arms)
