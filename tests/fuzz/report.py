"""Collects verdicts over many seeds: how many were differential, why others were not, what failed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.fuzz.wave import HEAVY, REJECTED, Verdict

SPARK = "spark"
MOST_REJECTED = 0.02
LEAST_ON_SPARK = 0.9


@dataclass
class Report:
    queries: int = 0
    differential: int = 0
    refreshes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    heavy: int = 0
    failures: list[tuple[int, str, Verdict]] = field(default_factory=list)
    engines: Counter[str] = field(default_factory=Counter)  # of runs on Spark: spark, or why not

    def add(self, seed: int, verdicts: Mapping[str, Verdict]) -> None:
        for name, verdict in verdicts.items():
            self.queries += 1
            if verdict.status == REJECTED:
                self.rejected[verdict.detail.splitlines()[0]] += 1
            elif verdict.status == HEAVY:
                self.heavy += 1
            else:
                self.refreshes.update(verdict.actions)
                if verdict.engine:
                    self.engines[verdict.engine if verdict.engine == SPARK else shortened(verdict.engine)] += 1
                if verdict.mode == "DIFFERENTIAL":
                    self.differential += 1
                elif verdict.mode:
                    self.reasons[shortened(verdict.reason)] += 1
            if verdict.failed:
                self.failures.append((seed, name, verdict))

    @property
    def judged(self) -> int:
        return self.queries - self.heavy - sum(self.rejected.values())

    @property
    def share(self) -> float:
        return self.differential / max(self.judged, 1)

    @property
    def spark_share(self) -> float:
        """Of the queries all of whose refreshes ran on Spark."""
        return self.engines[SPARK] / max(self.engines.total(), 1)

    @property
    def rejected_share(self) -> float:
        return sum(self.rejected.values()) / max(self.queries, 1)

    def is_good(self, *, on_spark: bool) -> bool:
        """`on_spark`: of a run with engine => 'spark', in which most queries must be evaluated there."""
        is_enough = not on_spark or self.spark_share >= LEAST_ON_SPARK
        return not self.failures and self.rejected_share <= MOST_REJECTED and is_enough

    def lines(self) -> list[str]:
        text = [
            f"{self.queries} queries, {self.judged} judged ({self.heavy} too heavy, "
            f"{sum(self.rejected.values())} rejected by PostgreSQL)",
            f"DIFFERENTIAL {self.share:.1%}; refreshes {dict(self.refreshes)}; {len(self.failures)} failures",
        ]
        if self.engines:
            text.append(f"on Spark {self.spark_share:.1%} of {self.engines.total()}")
            others = [(why, count) for why, count in self.engines.most_common(25) if why != SPARK]
            text += [f"  PostgreSQL {count:5}  {why}" for why, count in others]
        text += [f"  FULL {count:5}  {reason}" for reason, count in self.reasons.most_common(25)]
        text += [f"  rejected {count:3}  {reason}" for reason, count in self.rejected.most_common(10)]
        for seed, name, verdict in self.failures:
            what = f"{verdict.status} {verdict.detail[:160]}"
            text.append(f"  FAILED seed {seed} {name} ({verdict.mode}, round {verdict.round}): {what}")
        return text


def shortened(reason: str | None) -> str:
    """Without the names, so that equal reasons meet."""
    return re.sub(r"\b[a-z]+\d+\b(\.\w+)?", "..", " ".join((reason or "no reason").split()))[:120]
