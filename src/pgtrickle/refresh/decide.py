"""What a refresh has to do for one stream table, from what its read transaction sees. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.fingerprint import same_identity, same_name, unchanged
from pgtrickle.model.flow import Cut, Frontier, Instance, Pending
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh import cost_model as cost

NO_DATA, FULL, DIFFERENTIAL, REINITIALIZE, PREPARE = "NO_DATA", "FULL", "DIFFERENTIAL", "REINITIALIZE", "PREPARE"


@dataclass(frozen=True, slots=True)
class Decision:
    action: str
    reason: Reason | None = None


def since(table: StreamTable, instance: Instance, now: Cut) -> Cut | None:
    """The cut that the content stands at, or None when it cannot be trusted here and now."""
    cut = Frontier.cut_at(table.frontier, instance.key)
    return cut if cut is not None and cut.precedes(now) else None


def reload_reason(table: StreamTable, instance: Instance, now: Cut, time_zone: str) -> Reason | None:
    """Why the content has to be computed from nothing; None when it stands at a usable cut."""
    if not table.is_populated:
        return Reason.of(ReasonCode.FIRST_LOAD)
    if table.needs_reinit:
        return table.reinit_reason or Reason.of(ReasonCode.REINIT_REQUESTED)
    if table.frontier is None:
        return Reason.of(ReasonCode.NO_FRONTIER)
    if instance.key not in table.frontier:
        return Reason.of(ReasonCode.OTHER_DATABASE)
    if since(table, instance, now) is None:
        return Reason.of(ReasonCode.XIDS_WENT_BACK)
    stored = (table.plan or {}).get("time_zone")
    # One that keeps its author's is evaluated with that.
    if "TimeZone" not in table.session_settings and stored is not None and stored != time_zone:
        return Reason.of(ReasonCode.TIME_ZONE_CHANGED, old=stored, new=time_zone)
    return None


def decide(
    table: StreamTable,
    *,
    differentiable: bool,
    reload: Reason | None,
    fingerprints: Mapping[int, str | None],
    pending: Mapping[int, Pending],
    source_rows: Mapping[int, float],
    limits: cost.Limits,
    past: cost.CostHistory,
    now: datetime,
) -> Decision:
    for source in table.watched:
        stored, current = table.fingerprints.get(source.relid), fingerprints.get(source.relid)
        columns = source.columns if differentiable and source.capturable else ()
        is_same = unchanged(stored, current, columns) and same_identity(stored, current)
        if not is_same or (table.mirror is not None and not same_name(stored, current)):
            return Decision(PREPARE, Reason.of(ReasonCode.SOURCE_CHANGED))
    if table.is_renamed:
        return Decision(PREPARE)  # the content stays: the same rows under other names
    if reload is None and "functions" in (table.plan or {}) and (table.plan or {})["functions"] != table.functions:
        return Decision(PREPARE, Reason.of(ReasonCode.FUNCTION_REPLACED))
    if reload is not None:
        return Decision(FULL if reload.code is ReasonCode.FIRST_LOAD else REINITIALIZE, reload)
    rows = sum(p.rows for p in pending.values())
    is_truncated = any(p.truncated for p in pending.values())
    if not differentiable:
        # The clock moves without a source: whoever gave such a query a schedule wants it recomputed by that.
        reason = table.mode_reason
        if table.schedule != "calculated" and reason is not None and reason.changes_by_itself:
            return Decision(FULL, reason)
        if rows or is_truncated or any(not s.capturable and s.type != "VIEW" for s in table.sources):
            return Decision(FULL, reason)
        return Decision(NO_DATA)
    if is_truncated:
        return Decision(FULL, Reason.of(ReasonCode.SOURCE_TRUNCATED))
    if not rows:
        return Decision(NO_DATA)
    if table.refresh_mode == "AUTO":
        # Compared with all sources together: a small table that changes wholly is still a small change of a large join.
        total = sum(max(source_rows.get(relid, 0.0), 0.0) for relid in pending)
        age = (now - table.created_at).total_seconds() if table.created_at is not None else 0.0
        choice = cost.choose(past, cost.CostInput(rows, total, age, now.timestamp(), table.last_full_ms), limits)
        return Decision(choice.kind, choice.reason)
    return Decision(DIFFERENTIAL)
