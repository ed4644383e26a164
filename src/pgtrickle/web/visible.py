"""Hides from viewers without the token what SQL hides from a role that may not read the tables.

Error texts can quote rows. Numbers of rows and of changes tell of tables that the viewer may not read, and so do
replicas, subscribers and mirrors elsewhere, which SQL shows only to readers of their source. Sizes, estimates and
counters of the server's statistics stay: PostgreSQL shows them to every role.
"""

from __future__ import annotations

import re
from dataclasses import replace

from pgtrickle.observe.state import Check, DatabaseState, FleetState, Source, TableDetail

HIDDEN = "The text is shown to viewers with the token."
HIDDEN_ALERT = "its problem is shown to viewers with the token"
# Checks whose findings name no reader, subscriber, connection or number of rows.
_OPEN_CHECKS = ("scheduler", "storage", "worker_pool")
_COUNTS_ROWS = re.compile(r"^\d+ changes are pending")


def visible_fleet(fleet: FleetState, *, trusted: bool) -> FleetState:
    if trusted:
        return fleet
    return replace(fleet, databases=tuple(_visible_database(database) for database in fleet.databases))


def _visible_database(database: DatabaseState) -> DatabaseState:
    return replace(
        database,
        problem=_hidden(database.problem),
        tables=tuple(
            replace(t, error=_hidden(t.error), changes_minute=None, written_minute=None) for t in database.tables
        ),
        sources=tuple(_visible_source(source) for source in database.sources),
        checks=tuple(_visible_check(check) for check in database.checks),
        broker=tuple(replace(b, pending_rows=None) for b in database.broker),
        units=tuple(replace(u, detail=_hidden(u.detail)) for u in database.units),
        replicas=(),
    )


def _hidden(text: str | None) -> str | None:
    return None if text is None else HIDDEN


def _visible_source(source: Source) -> Source:
    counts_rows = source.alert is not None and _COUNTS_ROWS.match(source.alert)
    return replace(source, pending_rows=None, read_by=(), alert=HIDDEN_ALERT if counts_rows else source.alert)


def _visible_check(check: Check) -> Check:
    is_open = check.severity == "OK" or check.name in _OPEN_CHECKS
    return check if is_open else replace(check, detail=HIDDEN)


def _code_text(code: str | None) -> str | None:
    return None if code is None else code.removeprefix("engine_").replace("_", " ")


def visible_detail(detail: TableDetail, *, trusted: bool) -> TableDetail:
    """Replaces reasons of refreshes by their codes, because these, too, can quote rows. Timings cannot."""
    if trusted:
        return detail
    refreshes = [
        {
            **row,
            "reason": _code_text(row["reason_code"]),
            "engine_reason": _code_text(row["engine_reason_code"]),
            "error": _hidden(row["error"]),
            **dict.fromkeys(("error_code", "inserted", "deleted", "changes", "operator_rows")),
        }
        for row in detail.refreshes
    ]
    return replace(
        detail,
        refreshes=tuple(refreshes),
        costs=tuple({**row, "median_changes": None} for row in detail.costs),
        buffers=tuple({**row, "pending_rows": None, "row_count": None} for row in detail.buffers),
        reinit_reason=_hidden(detail.reinit_reason),
    )
