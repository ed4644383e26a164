"""Alerts from the state of the fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pgtrickle.observe.state import CRITICAL, STALE, STOPPED, WARNING, DatabaseState, FleetState, Table


@dataclass(frozen=True, slots=True)
class Alert:
    """`detail` may quote rows: only viewers with the token get it. `table`: schema and name."""

    severity: str
    kind: str
    database: str
    table: tuple[str, str] | None
    summary: str
    detail: str | None = None
    code: str | None = None
    since: float | None = None


def alerts(fleet: FleetState) -> list[Alert]:
    """The worst first."""
    all_alerts = [alert for database in fleet.databases for alert in _of_database(database)]
    if fleet.pool.most and fleet.pool.active >= fleet.pool.most and fleet.pool.queued:
        summary = f"All {fleet.pool.most} workers are busy and {fleet.pool.queued} units wait"
        all_alerts.append(Alert(WARNING, "workers", "", None, summary))
    return sorted(all_alerts, key=lambda a: (a.severity != CRITICAL, a.database, a.kind, a.table or ("", "")))


def _of_database(database: DatabaseState) -> Iterator[Alert]:
    label = database.label
    if database.problem is not None:
        yield Alert(CRITICAL, "database", label, None, "The database cannot be read", database.problem)
        return
    for table in database.tables:
        yield from _of_table(label, table)
    for source in database.sources:
        if source.alert is not None:
            yield Alert(WARNING, "capture", label, None, f"{source.full_name}: {source.alert}")
    for check in database.checks:
        if check.severity != "OK" and check.name not in ("capture", "worker_pool"):
            severity = CRITICAL if check.severity == "ERROR" else WARNING
            # The other findings name readers and subscribers, count their rows, or quote problems of connections.
            is_open = check.name not in ("origins", "broker", "readers", "subscribers")
            summary = check.detail if is_open else f"The check '{check.name}' reports a problem"
            yield Alert(severity, check.name, label, None, summary, None if is_open else check.detail)
    for replica in database.replicas:
        if replica.state == "failed":
            yield Alert(WARNING, "replica", label, None, f"The replica of {replica.source} failed", replica.error)


def _of_table(label: str, table: Table) -> Iterator[Alert]:
    name = table.schema, table.name
    if table.freshness == STOPPED:
        verb = "is suspended" if table.status == "SUSPENDED" else "has failed and is not refreshed"
        yield Alert(
            CRITICAL,
            "stopped",
            label,
            name,
            f"{table.full_name} {verb}",
            table.error,
            table.error_code,
            table.refreshed_at,
        )
    elif table.consecutive_errors or table.error_code:
        summary = (
            f"{table.full_name} waits"
            if not table.consecutive_errors
            else (f"The last {table.consecutive_errors} refreshes of {table.full_name} failed")
        )
        yield Alert(WARNING, "failing", label, name, summary, table.error, table.error_code, table.refreshed_at)
    if table.freshness == STALE:
        behind = f"up to {table.lag:.0f} s behind" if table.lag is not None else "behind"
        yield Alert(WARNING, "stale", label, name, f"{table.full_name} is {behind} and no refresh is imminent")
