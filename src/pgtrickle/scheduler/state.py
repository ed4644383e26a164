"""The state of a scheduler: the catalog, pending changes, tables in progress.

Pure: the time is an argument. Arrays are copied when a definition is added, dropped or changed; everything else
changes them in place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pgtrickle.errors import (
    DefinitionError,
    EngineLostError,
    FencedError,
    OriginAwayError,
    PgtrickleError,
    TransientError,
)
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.model.work import TIERS, Node, Unit
from pgtrickle.scheduler.due import (
    ASKED,
    CLOCK,
    DIRTY,
    ERRED,
    FROZEN,
    IN_FLIGHT,
    INACTIVE,
    REDEFINED,
    REINIT,
    REQUESTED,
    Due,
    Members,
    Positions,
    positions_of,
)
from pgtrickle.scheduler.policy import Tiers
from pgtrickle.scheduler.schedule import CALCULATED
from pgtrickle.scheduler.units import TickInput

DEMOTE_SECONDS = 60.0
_TIER = {name: position for position, name in enumerate(TIERS)}
# Results of a table, as the pipeline reports them.
ERRORS: Mapping[str, type[PgtrickleError]] = {
    "retry": TransientError,
    "away": OriginAwayError,
    "engine": EngineLostError,
    "fenced": FencedError,
    "stop": DefinitionError,
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the statement schedule_rows."""

    pgt_id: int
    relid: int
    sources: tuple[int, ...]
    schedule: str
    refresh_mode: str
    status: str
    is_populated: bool
    needs_reinit: bool
    is_requested: bool
    last_refresh: float
    tier: str
    tier_pinned: bool
    diamond_consistency: str | None
    diamond_schedule_policy: str | None
    needs_no_changes: bool
    name: str

    @property
    def shape(self) -> tuple[object, ...]:
        """Input of the arrays and the graph."""
        node = (self.pgt_id, self.relid, frozenset(self.sources), self.schedule, self.refresh_mode)
        diamond = (self.diamond_consistency, self.diamond_schedule_policy)
        return (*node, *diamond, self.needs_no_changes, self.tier_pinned, self.tier if self.tier_pinned else None)

    @property
    def flags(self) -> int:
        flags = CLOCK if self.needs_no_changes else 0
        if self.status == "ERROR":
            flags |= REQUESTED | ERRED
        elif self.is_requested:
            flags |= REQUESTED
        elif self.is_populated and self.needs_reinit:
            flags |= REINIT
        # Created with initialize => false, it is not loaded until a refresh is requested.
        is_waiting = not self.is_populated and not self.is_requested and self.status != "ERROR"
        if self.status == "SUSPENDED" or is_waiting:
            flags |= INACTIVE
        if self.tier_pinned and self.tier == "frozen":
            flags |= FROZEN
        return flags

    def node(self) -> Node:
        return Node(
            self.pgt_id,
            self.relid,
            self.sources,
            self.schedule,
            self.refresh_mode,
            self.tier,
            self.diamond_consistency,
            self.diamond_schedule_policy,
        )


class ScheduleState:
    """Tables by pgt_id; columns by position."""

    def __init__(self, now: float, *, tiered: bool = True) -> None:
        self._rows: dict[int, Row] = {}
        self.tiered = tiered  # the setting tiered_scheduling; takes effect for rows that are loaded afterwards
        self._demoted_at = now
        self._passed = -np.inf
        self._held: frozenset[int] = frozenset()
        self._failed: dict[int, Reason] = {}
        self._ids: list[int] = []
        self._index: dict[int, int] = {}
        nothing = np.zeros(0)
        self._due = Due.of((), (), (), ())
        self._tiers = Tiers.of(nothing, (), nothing > 0, nothing > 0, nothing > 0, now)
        self._stored_tiers = np.zeros(0, dtype=np.int8)  # the tiers that the catalog has

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self) -> list[Row]:
        return list(self._rows.values())

    def load(self, rows: Iterable[Row], ids: Collection[int] | None, now: float) -> set[int]:
        """Loads all rows of the catalog (ids None), or those of these tables. Returns the tables whose position in the
        graph has changed: new, dropped or redefined. The cost is proportional to the given tables, and the columns are
        copied if any table is returned.
        """
        by_id = {row.pgt_id: row for row in rows}
        removed = [i for i in (self._rows if ids is None else ids) if i in self._rows and i not in by_id]
        fresh = [i for i in by_id if i not in self._rows]
        moved = [i for i, row in by_id.items() if i in self._rows and self._rows[i].shape != row.shape]
        for pgt_id in removed:
            del self._rows[pgt_id]
            self._failed.pop(pgt_id, None)
        self._rows |= by_id
        for pgt_id, row in by_id.items():
            self._failed.pop(pgt_id, None)
            if row.status in ("ERROR", "SUSPENDED"):
                reason = Reason.of(ReasonCode.WAITS_FOR_STREAM_TABLE, table=row.name, status=row.status)
                self._failed[pgt_id] = reason
        changed = {*removed, *fresh, *moved}
        placed = by_id.keys() if ids is None else {*fresh, *moved}
        if placed or removed:
            self._place([by_id[i] for i in sorted(placed)], self._at((*removed, *placed)), now)
            self._due.mark(self._at(fresh), DIRTY)  # not checked yet
        for pgt_id, row in by_id.items():
            if pgt_id not in placed:
                self._refresh(self._index[pgt_id], row)
        return changed

    def _place(self, rows: Sequence[Row], dropped: Positions, now: float) -> None:
        """These rows get positions behind the remaining ones; positions in `dropped` are removed."""
        immediate = np.array([r.refresh_mode == "IMMEDIATE" for r in rows], dtype=np.bool_)
        due = Due.of(
            [r.schedule for r in rows],
            np.array([r.flags for r in rows], dtype=np.uint16),
            [r.last_refresh for r in rows],
            immediate,
        )
        is_cron = np.zeros(len(rows), dtype=np.bool_)
        is_cron[due.cron] = True
        uncounted = np.array([r.needs_no_changes or r.schedule == CALCULATED for r in rows], dtype=np.bool_)
        stored = np.array([_TIER[r.tier] for r in rows], dtype=np.int8)
        tiers = Tiers.of(
            np.where(np.isnan(due.period), 1.0, due.period),
            stored,
            np.array([r.tier_pinned for r in rows], dtype=np.bool_),
            immediate | is_cron | (not self.tiered),
            ~uncounted,
            now,
        )
        before = np.array([self._index.get(r.pgt_id, -1) for r in rows], dtype=np.intp)
        due.keep(self._due, before)
        tiers.keep(self._tiers, before)
        due.set_multiplier(np.arange(len(rows)), tiers.multiplier)
        stay = np.delete(np.arange(len(self._ids)), dropped)
        self._due = self._due.joined(stay, due)
        self._tiers = self._tiers.joined(stay, tiers)
        self._stored_tiers = np.concatenate([self._stored_tiers[stay], stored])
        self._ids = [self._ids[p] for p in stay.tolist()] + [r.pgt_id for r in rows]
        self._index = {pgt_id: position for position, pgt_id in enumerate(self._ids)}

    def _refresh(self, position: int, row: Row) -> None:
        remaining = int(self._due.flags[position]) & (DIRTY | REDEFINED | IN_FLIGHT)
        was_stopped = bool(self._due.flags[position] & (INACTIVE | ERRED))
        flags = row.flags
        if (
            remaining & IN_FLIGHT
        ):  # the reasons of its refresh are still in the catalog; later ones are found by the next check
            flags &= ~(int(self._due.aside[position]) & (REQUESTED | REINIT))
        self._due.flags[position] = flags | remaining
        self._due.last[position] = row.last_refresh
        self._stored_tiers[position] = _TIER[row.tier]
        self._due.arm(np.array([position]))
        if was_stopped and not flags & (INACTIVE | ERRED):
            self._due.failures[position] = 0
            self._due.backoff_until[position] = -np.inf

    def changed(self, tables: Iterable[int], now: float) -> list[str]:
        """Sources of these tables have changes. Returns the names of frozen tables that were not reported yet."""
        positions = self._at(tables)
        self._due.mark(positions, DIRTY)
        happened = self._tiers.changed(positions, now)
        if len(happened.promoted):
            self._due.set_multiplier(happened.promoted, self._tiers.multiplier_at(happened.promoted))
        return [self._rows[self._ids[p]].name for p in happened.alerts.tolist()]

    def demote(self, now: float) -> dict[int, str]:
        """Every minute: tables that change more rarely than their tier says. Returns the tiers that moved."""
        if now - self._demoted_at < DEMOTE_SECONDS:
            return {}
        self._demoted_at = now
        moved = self._tiers.demote(now)
        self._due.set_multiplier(moved, self._tiers.multiplier_at(moved))
        return self._moved()

    def _moved(self) -> dict[int, str]:
        """Tiers that differ from the catalog."""
        others = np.flatnonzero(self._tiers.tier != self._stored_tiers).tolist()
        return {self._ids[p]: TIERS[self._tiers.tier[p]] for p in others}

    def dirty(self, tables: Iterable[int]) -> None:
        """They may have undetected changes."""
        self._due.mark(self._at(tables), DIRTY)

    def redefined(self, tables: Iterable[int]) -> None:
        """Something that they read was redefined or dropped. They do not wait for their schedule; frozen ones do."""
        positions = self._at(tables)
        self._due.mark(positions[self._due.flags[positions] & FROZEN == 0], REDEFINED)

    def end_backoff(self) -> None:
        """Tables that back off after a failure are retried now."""
        self._due.end_backoff()

    def hold(self, tables: Iterable[int]) -> None:
        """Tables that wait: an upstream table has failed, or the graph does not contain them yet."""
        self._held = frozenset(tables)

    def failed(self) -> dict[int, Reason]:
        """Tables that are not refreshed until a user acts, with the reason for which their readers wait."""
        return dict(self._failed)

    def tick_input(self, now: float, behind: Collection[int], released: Collection[int]) -> TickInput | None:
        """The input of a tick; None: nothing is due."""
        positions = self._due.due(now)
        if not len(positions):
            return None
        asked = set(self._due.asked(positions).tolist())
        due, index = self._due, self._index
        return TickInput(
            due=[self._ids[p] for p in positions.tolist() if p not in asked],
            asked=[self._ids[p] for p in sorted(asked)],
            scheduled=Members(index, lambda p: due.time_has_come(p, now)),
            dirty=Members(index, lambda p: bool(due.flags[p] & DIRTY)),
            busy=Members(index, lambda p: bool(due.flags[p] & IN_FLIGHT) or self._ids[p] in behind),
            # A dropped table may still be in the graph until the next one is swapped in.
            barred=Members(index, lambda p: due.is_barred(p, now) or self._ids[p] in self._held, unknown=True),
            released=released,
            tier=lambda i: int(self._tiers.tier[index[i]]),
        )

    def passed(self, now: float) -> None:
        """The tick is over. Tables that were due and not refreshed wait for others, and for the next tick."""
        self._due.pass_over(now)
        self._passed = now

    def next_due_time(self, now: float) -> float:
        return self._due.next_due_time(now, self._passed)

    def next_wake_time(self) -> float:
        return self._due.next_wake_time()

    def queued(self, units: Sequence[Unit]) -> None:
        self._due.queued(self._at(i for unit in units for i in unit.members))

    def finished(self, pgt_id: int, branch: str, began: float, now: float) -> bool:
        """`branch`: ok, cancelled, or one of ERRORS. True when its row has to be read again."""
        position = self._index.get(pgt_id)
        if position is None:
            return False
        if branch == "cancelled":
            self._due.returned(np.array([position]))
            return False
        if branch == "ok":
            had = int(self._due.aside[position])
            self._due.done(np.array([position]), began)
            self._tiers.settled(np.array([position]))
            row = self._rows[pgt_id]
            # A request, a first load, a reload: the catalog shows whether it is done.
            return bool(had & (REQUESTED | REINIT)) or not row.is_populated or row.status != "ACTIVE"
        self._due.failed(position, ERRORS[branch], now)
        return branch != "engine"

    def has_due(self, now: float) -> bool:
        """Whether a table is due: with changes that came while it was refreshed, for example. Tables that wait for a
        failed one do not count."""
        return any(self._ids[p] not in self._held for p in self._due.due(now).tolist())

    def has_asked(self, now: float) -> bool:
        """Whether a refresh is requested that no table is in the way of: neither itself nor its backoff."""
        return bool(len(self._due.asked(self._due.due(now))))

    def is_asked(self, pgt_id: int) -> bool:
        """A refresh is requested: by a user, for the first load, or for a new load."""
        position = self._index.get(pgt_id)
        return position is not None and bool(self._due.flags[position] & ASKED)

    def _at(self, tables: Iterable[int]) -> Positions:
        return positions_of(tables, self._index)
