"""Hides texts from viewers without the token: error texts can quote rows."""

from __future__ import annotations

from dataclasses import replace

from pgtrickle.observe.alerts import Alert
from pgtrickle.observe.state import DatabaseState, FleetState, TableDetail

HIDDEN = "The text is shown to viewers with the token."


def visible_fleet(fleet: FleetState, *, texts: bool) -> FleetState:
    if texts:
        return fleet
    return replace(fleet, databases=tuple(_without_texts(database) for database in fleet.databases))


def _without_texts(database: DatabaseState) -> DatabaseState:
    return replace(
        database,
        problem=None if database.problem is None else HIDDEN,
        tables=tuple(t if t.error is None else replace(t, error=HIDDEN) for t in database.tables),
        units=tuple(u if u.detail is None else replace(u, detail=HIDDEN) for u in database.units),
        replicas=tuple(r if r.error is None else replace(r, error=HIDDEN) for r in database.replicas),
    )


def visible_alerts(alerts: list[Alert], *, texts: bool) -> list[Alert]:
    return alerts if texts else [a if a.detail is None else replace(a, detail=HIDDEN) for a in alerts]


def _code_text(code: str | None) -> str | None:
    return None if code is None else code.removeprefix("engine_").replace("_", " ")


def visible_detail(detail: TableDetail, *, texts: bool) -> TableDetail:
    """Replaces reasons of refreshes by their codes, because these, too, can quote rows. Frontier and timings cannot."""
    if texts:
        return detail
    hidden = [
        {
            **row,
            "reason": _code_text(row["reason_code"]),
            "engine_reason": _code_text(row["engine_reason_code"]),
            "error": None if row["error"] is None else HIDDEN,
        }
        for row in detail.refreshes
    ]
    return replace(detail, refreshes=tuple(hidden), reinit_reason=None if detail.reinit_reason is None else HIDDEN)
