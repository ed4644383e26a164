"""Tiers: how often a stream table is checked, by how often its sources change. Pure; arrays over all tables.

Frequency is measured in the table's own periods. `gap` is a running mean of the time between changes, r = gap / period.

| tier | gets there | leaves it for the next colder when |
|---|---|---|
| hot (x1) | r <= 2, or the latest gap was: it changes in most of its periods | r > 4 |
| warm (x2) | r <= 10, or the latest gap was | r > 20 |
| cold (x10) | with its first change, at the latest | nothing for 1,000 periods and an hour |
| frozen | | a change comes |

Upward immediately, with the change itself; the mean restarts there. Downward by at most one tier per minute, with the
current gap counted as if a change came now. A table that is promoted soon after it was demoted has its bounds for
leaving doubled, up to eight times, so that it does not flap; one that becomes colder again has them halved.

A pinned tier has precedence. Cron and IMMEDIATE tables ignore tiers, pins included (`exempt`). Tables that are
refreshed without changes being captured (the clock, foreign tables) and `calculated` ones, which have no period, have
only pinned tiers (not `measured`). Frozen by a pin means skipped; frozen by itself means only that nothing has happened
for long.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from pgtrickle.model.work import MULTIPLIERS, TIERS

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]

HOT, WARM, COLD, FROZEN = range(len(TIERS))
ENTER = (2.0, 10.0)  # hot, warm: at most so many periods per change
LEAVE = (4.0, 20.0)
FREEZE_PERIODS, FREEZE_SECONDS = 1000.0, 3600.0
WEIGHT = 0.25  # of the latest gap in the mean
MOST_PATIENCE = 8.0
SOON_PERIODS = 100.0

_START = np.array([*ENTER, 10 * ENTER[WARM], FREEZE_PERIODS])  # periods per change, until it is known better
# Frozen by itself it has no changes, and with the first one it is cold.
_MULTIPLIER = np.array([MULTIPLIERS.get(tier, MULTIPLIERS["cold"]) for tier in TIERS], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Changes:
    """The effect of a round of changes. Positions."""

    promoted: Positions
    alerts: Positions  # frozen by a pin, with pending changes that are not applied; reported once per episode


@dataclass(slots=True)
class Tiers:
    """One entry per stream table in each column."""

    period: Floats  # seconds; of those that are measured
    tier: npt.NDArray[np.int8]  # position in TIERS
    pinned: Flags
    exempt: Flags
    measured: Flags
    last_change: Floats
    gap: Floats
    patience: Floats
    demoted_at: Floats
    alerted: Flags

    @classmethod
    def of(
        cls, period: Floats, tier: npt.ArrayLike, pinned: Flags, exempt: Flags, measured: Flags, now: float
    ) -> Tiers:
        count = len(period)
        tiers = np.array(tier, dtype=np.int8)
        return cls(
            period=period,
            tier=tiers,
            pinned=pinned,
            exempt=exempt,
            measured=measured & ~exempt,
            last_change=np.full(count, now),
            gap=np.where(measured, period, 1.0) * _START[tiers],
            patience=np.ones(count),
            demoted_at=np.full(count, -np.inf),
            alerted=np.zeros(count, dtype=np.bool_),
        )

    def joined(self, stay: Positions, more: Tiers) -> Tiers:
        """The entries at `stay`, followed by `more`."""
        names = [f.name for f in fields(self)]
        return Tiers(**{n: np.concatenate([getattr(self, n)[stay], getattr(more, n)]) for n in names})

    def keep(self, old: Tiers, positions: Positions) -> None:
        """Copies measurements when the tables are reloaded: positions in `old`, -1 for new ones."""
        here = np.flatnonzero(positions >= 0)
        there = positions[here]
        for name in ("last_change", "gap", "patience", "demoted_at"):
            getattr(self, name)[here] = getattr(old, name)[there]
        automatic = here[(self.measured & ~self.pinned)[here]]
        self.tier[automatic] = old.tier[positions[automatic]]
        same = here[self.skipped_at(here) & old.skipped_at(there)]
        self.alerted[same] = old.alerted[positions[same]]

    @property
    def skipped(self) -> Flags:
        """Not refreshed by their schedule, whatever changes."""
        return self.skipped_at(np.arange(len(self.tier)))

    def skipped_at(self, positions: Positions) -> Flags:
        skipped: Flags = self.pinned[positions] & (self.tier[positions] == FROZEN) & ~self.exempt[positions]
        return skipped

    @property
    def multiplier(self) -> Floats:
        return self.multiplier_at(np.arange(len(self.tier)))

    def multiplier_at(self, positions: Positions) -> Floats:
        multipliers: Floats = np.where(self.exempt[positions], 1.0, _MULTIPLIER[self.tier[positions]])
        return multipliers

    def changed(self, positions: Positions, now: float) -> Changes:
        """Sources of these tables have changed. Costs in proportion to the tables that are named."""
        skipped = positions[self.skipped_at(positions) & ~self.alerted[positions]]
        self.alerted[skipped] = True
        latest = now - self.last_change[positions]
        mean = self.gap[positions] + WEIGHT * (latest - self.gap[positions])
        self.gap[positions] = mean
        self.last_change[positions] = now
        automatic = self.measured[positions] & ~self.pinned[positions]
        positions, latest, mean = positions[automatic], latest[automatic], mean[automatic]
        rate = np.minimum(latest, mean) / self.period[positions]
        target = np.where(rate <= ENTER[HOT], HOT, np.where(rate <= ENTER[WARM], WARM, COLD)).astype(np.int8)
        up = target < self.tier[positions]
        promoted = positions[up]
        self.tier[promoted] = target[up]
        # A mean from quieter times would undo the promotion in the next minute.
        self.gap[promoted] = np.minimum(self.gap[promoted], _START[target[up]] * self.period[promoted])
        soon = promoted[now - self.demoted_at[promoted] <= SOON_PERIODS * self.period[promoted]]
        self.patience[soon] = np.minimum(self.patience[soon] * 2, MOST_PATIENCE)
        return Changes(promoted, skipped)

    def demote(self, now: float) -> Positions:
        """Called every minute: tables that change less often than their tier says go one colder. Positions."""
        silence = now - self.last_change
        expected = np.maximum(self.gap, self.gap + WEIGHT * (silence - self.gap))
        leave = self.patience * self.period
        down = (self.tier == HOT) & (expected > LEAVE[HOT] * leave)
        down |= (self.tier == WARM) & (expected > LEAVE[WARM] * leave)
        down |= (self.tier == COLD) & (silence > np.maximum(FREEZE_PERIODS * self.period, FREEZE_SECONDS))
        demoted = np.flatnonzero(down & self.measured & ~self.pinned)
        self.tier[demoted] += 1
        further = demoted[self.tier[demoted] > WARM]
        self.patience[further] = np.maximum(self.patience[further] / 2, 1.0)
        self.demoted_at[demoted] = now
        return demoted

    def pin(self, position: int, tier: int | None) -> None:
        """The tier of alter_stream_table(tier => ...); None: automatic again, from the current tier."""
        self.pinned[position] = tier is not None
        if tier is not None:
            self.tier[position] = tier
        self.alerted[position] = False

    def settled(self, positions: Positions) -> None:
        """Refreshed, on request if they are frozen: the next changes are another episode."""
        self.alerted[positions] = False
