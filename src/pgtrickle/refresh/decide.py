"""Decides what a refresh of one stream table has to do, from the state that its read transaction sees. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from pgtrickle.model.catalog import Source, StreamTable
from pgtrickle.model.fingerprint import same_columns, same_identity, same_name, unchanged
from pgtrickle.model.flow import Cut, Frontier, Instance, Pending
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh import cost_model as cost

NO_DATA, FULL, DIFFERENTIAL, REINITIALIZE, PREPARE = "NO_DATA", "FULL", "DIFFERENTIAL", "REINITIALIZE", "PREPARE"


@dataclass(frozen=True, slots=True)
class Decision:
    action: str
    reason: Reason | None = None


def since(table: StreamTable, instance: Instance, now: Cut) -> Cut | None:
    """The cut of the content, or None if the content is not valid here and now."""
    cut = Frontier.cut_at(table.frontier, instance.key)
    return cut if cut is not None and cut.precedes(now) else None


def reload_reason(table: StreamTable, instance: Instance, now: Cut, time_zone: str) -> Reason | None:
    """Why the content has to be loaded again; None if its cut is usable."""
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
    # A table with its author's TimeZone does not depend on that of the session.
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
    untried: tuple[str, Reason] | None = None,
) -> Decision:
    """The first rule that applies: prepare, load, FULL or DIFFERENTIAL."""
    earlier = prepared_first(table, fingerprints, differentiable=differentiable, has_content=reload is None)
    if earlier is not None:
        return earlier
    if reload is not None:
        return Decision(FULL if reload.code is ReasonCode.FIRST_LOAD else REINITIALIZE, reload)
    rows = sum(p.rows for p in pending.values())
    is_truncated = any(p.truncated for p in pending.values())
    if not differentiable:
        return _recomputed(table, has_changes=is_truncated or rows > 0)
    if is_truncated:
        return Decision(FULL, Reason.of(ReasonCode.SOURCE_TRUNCATED))
    if not rows:
        return Decision(NO_DATA)
    if table.refresh_mode != "AUTO":
        return Decision(DIFFERENTIAL)
    # Compared with all sources together: a complete change of a small table is a small change of a large join.
    total = sum(max(source_rows.get(relid, 0.0), 0.0) for relid in pending)
    age = (now - table.created_at).total_seconds() if table.created_at is not None else 0.0
    cost_input = cost.CostInput(
        rows, total, age, now.timestamp(), table.last_full_ms, untried, max_fraction=table.max_delta_fraction
    )
    choice = cost.choose(past, cost_input, limits)
    return Decision(choice.kind, choice.reason)


def prepared_first(
    table: StreamTable, fingerprints: Mapping[int, str | None], *, differentiable: bool, has_content: bool
) -> Decision | None:
    """PREPARE if compiled statements or captured columns may no longer match the sources."""
    for source in table.watched:
        columns = source.columns if differentiable and source.capturable else ()
        if not _is_as_prepared(table, source, fingerprints.get(source.relid), columns):
            return Decision(PREPARE, Reason.of(ReasonCode.SOURCE_CHANGED))
    if table.is_renamed:
        return Decision(PREPARE)  # the content stays valid: the same rows under other names
    plan = table.plan or {}
    if has_content and "functions" in plan and plan["functions"] != table.functions:
        return Decision(PREPARE, Reason.of(ReasonCode.FUNCTION_REPLACED))
    return None


def _is_as_prepared(table: StreamTable, source: Source, current: str | None, columns: Collection[int]) -> bool:
    stored = table.fingerprints.get(source.relid)
    if not (unchanged(stored, current, columns) and same_identity(stored, current)):
        return False
    if not columns and source.capturable and not same_columns(stored, current, source.columns):
        return False
    return table.mirror is None or same_name(stored, current)


def _recomputed(table: StreamTable, *, has_changes: bool) -> Decision:
    """The decision for a table that is not differentiable."""
    reason = table.mode_reason
    # The result changes with the clock, without a change of a source: the schedule decides.
    moves_by_itself = table.schedule != "calculated" and reason is not None and reason.changes_by_itself
    is_unseen = any(not s.capturable and s.type != "VIEW" for s in table.sources)
    return Decision(FULL, reason) if moves_by_itself or has_changes or is_unseen else Decision(NO_DATA)
