"""The output of the demo: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.model.identifiers import quote_ident

if TYPE_CHECKING:
    from rich.console import Group

    from pgtrickle.db.connect import Connection
    from pgtrickle.demo.workload import Tally

# One row per stream table: its state, how often it was refreshed, and its latest refresh that did something.
_STATE = """
SELECT st.pgt_schema, st.pgt_name, st.status, st.is_populated, st.last_error_message,
       i.behind_seconds::float8 AS lag,
       h.refreshes, h.changes, l.action, l.engine,
       extract(epoch FROM l.end_time - l.start_time)::float8 * 1000 AS ms
FROM pgtrickle.pgt_stream_tables AS st
JOIN pgtrickle.stream_tables_info AS i ON i.pgt_id = st.pgt_id
CROSS JOIN LATERAL (
    SELECT count(*) AS refreshes,
           coalesce(sum(coalesce(rows_inserted, 0) + coalesce(rows_deleted, 0)), 0)::bigint AS changes
    FROM pgtrickle.pgt_refresh_history
    WHERE pgt_id = st.pgt_id AND status = 'COMPLETED' AND action <> 'NO_DATA'
) AS h
LEFT JOIN LATERAL (
    SELECT action, engine, start_time, end_time
    FROM pgtrickle.pgt_refresh_history
    WHERE pgt_id = st.pgt_id AND status = 'COMPLETED' AND action <> 'NO_DATA'
    ORDER BY refresh_id DESC
    LIMIT 1
) AS l ON true
ORDER BY st.pgt_id
"""


@dataclass(frozen=True, slots=True)
class TableState:
    """One line of the view."""

    name: str
    status: str
    populated: bool
    error: str | None
    rows: int
    lag_s: float | None  # behind its sources, 0 if nothing is pending
    refreshes: int
    changes: int
    mode: str | None
    engine: str | None
    ms: float | None


def read_states(conn: Connection) -> list[TableState]:
    with translated():
        states = []
        for schema, name, status, populated, error, lag, *latest in conn.execute(_STATE):
            counted = conn.execute(f"SELECT count(*) FROM {quote_ident(schema)}.{quote_ident(name)}").fetchone()
            rows = counted[0] if counted else 0
            states.append(TableState(name, status, populated, error, rows, lag, *latest))
        return states


class Rates:
    """Changed rows per second of each stream table, over the last few samples."""

    def __init__(self, keep: int = 8) -> None:
        self._keep = keep
        self._samples: list[tuple[float, dict[str, int]]] = []

    def update(self, now: float, states: Sequence[TableState]) -> dict[str, float]:
        self._samples = [*self._samples[-self._keep :], (now, {state.name: state.changes for state in states})]
        then, before = self._samples[0]
        span = max(now - then, 1e-9)
        return {s.name: (s.changes - before.get(s.name, s.changes)) / span for s in states}


def headline(tally: Tally, elapsed_s: float) -> str:
    rate = tally.changed_rows / max(elapsed_s, 1e-9)
    return (
        f"shop: {tally.committed} transactions committed, {tally.rolled_back} rolled back, "
        f"{tally.changed_rows} rows written, {rate:.0f}/s"
    )


def lines(states: Sequence[TableState], rates: dict[str, float]) -> list[str]:
    """The states as plain lines, for pipes and logs."""
    return [
        f"  {s.name:<18} {s.rows:>7} rows  {(s.mode or s.status):<13} {(s.engine or '-'):<8} {_ms(s.ms):>7} ms  "
        f"{s.refreshes:>4} refreshes  {rates.get(s.name, 0):>6.1f} changes/s  {_lag(s)}"
        + (f"  {s.error}" if s.error else "")
        for s in states
    ]


def live(states: Sequence[TableState], rates: dict[str, float], head: str, foot: str) -> Group:
    """The states as a table, for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=head, title_justify="left", title_style="bold", expand=False)
    table.add_column("stream table")
    for column in ("rows", "mode", "engine", "ms", "refreshes", "changes/s", "lag"):
        table.add_column(column, justify="left" if column in ("mode", "engine") else "right")
    for s in states:
        style = "red" if s.error else "green" if rates.get(s.name, 0) > 0 else ""
        table.add_row(
            s.name,
            str(s.rows),
            s.mode or s.status,
            s.engine or "-",
            _ms(s.ms),
            str(s.refreshes),
            f"{rates.get(s.name, 0):.1f}",
            _lag(s),
            style=style,
        )
    errors = [Text(f"{s.name}: {s.error}", style="red") for s in states if s.error]
    return Group(table, *errors, Text(foot, style="dim"))


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _lag(state: TableState) -> str:
    if not state.populated:
        return "not loaded"
    return "-" if state.lag_s is None else f"lag {max(state.lag_s, 0):.1f} s"
