"""Which engine evaluates a full refresh: PostgreSQL or Spark. Pure. (`way_choice.py`: for differential refreshes.)

The cost of a refresh is its elapsed time plus the weighted time that the source server spent on it
(`source_cost_weight`). Each engine is judged by the median of its latest refreshes. A refresh that started Spark or
created a replica is no sample. An engine without samples is tried once when it may be cheaper; the engine that is not
chosen is measured again after a number of refreshes that grows with its extra cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from statistics import median_low

from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import POSTGRES, SPARK, CostHistory

# The minimal cost of Spark in a warm session (planning, stages, writing the result), with a share of the cost of
# replicas.
SPARK_LEAST_MS = 1_000.0
ENOUGH = 3  # refreshes on PostgreSQL before Spark is tried: one outlier does not build a replica
LATEST = 5  # samples of each engine: after a change of the costs, three new ones decide
BAND = 0.1  # how much cheaper the other engine must be before it is chosen
PRICE = 0.1  # share that measuring the other engine may add to the cost of all refreshes
SHORTEST_WAIT = 5  # refreshes between two measurements of the engine that is not chosen
LONGEST_WAIT = 200


@dataclass(frozen=True, slots=True)
class EngineInput:
    """The input of a choice besides the samples. `obstacle`: why Spark cannot evaluate this refresh."""

    option: str | None  # of the stream table
    setting: str
    weight: float
    obstacle: Reason | None


@dataclass(frozen=True, slots=True)
class EngineChoice:
    engine: str
    reason: Reason


IN_CHAIN = EngineChoice(POSTGRES, Reason.of(ReasonCode.ENGINE_CHAIN))
ON_SPARK = EngineChoice(SPARK, Reason.of(ReasonCode.ENGINE_NAMED, engine=SPARK))
PUSHED_DOWN = EngineChoice(POSTGRES, Reason.of(ReasonCode.ENGINE_PUSHED_DOWN))


def named_engine(engine_input: EngineInput) -> EngineChoice | None:
    """The choice by option, setting or obstacle; None: the cost decides."""
    named = engine_input.option if engine_input.option is not None else engine_input.setting
    if named == POSTGRES or (named == SPARK and engine_input.obstacle is None):
        if engine_input.option is not None:
            return EngineChoice(named, Reason.of(ReasonCode.ENGINE_NAMED, engine=named))
        return EngineChoice(named, Reason.of(ReasonCode.ENGINE_SETTING, engine=named))
    return None if engine_input.obstacle is None else EngineChoice(POSTGRES, engine_input.obstacle)


def choose_engine(past: CostHistory, engine_input: EngineInput) -> EngineChoice:
    """The engine of a full refresh."""
    if (named := named_engine(engine_input)) is not None:
        return named
    postgres, spark = (
        [s.cost(engine_input.weight) for s in past.of_engine(engine)][-LATEST:] for engine in (POSTGRES, SPARK)
    )
    if not postgres or not spark:
        return _without_samples(postgres, spark)
    return _compared(past, postgres, spark, engine_input.weight)


def _without_samples(postgres: Sequence[float], spark: Sequence[float]) -> EngineChoice:
    """PostgreSQL is measured first. Spark is tried if PostgreSQL costs more than the minimal cost of Spark."""
    if len(postgres) < (1 if spark else ENOUGH):
        return EngineChoice(POSTGRES, Reason.of(ReasonCode.ENGINE_UNKNOWN_COST, engine="PostgreSQL"))
    known = median_low(postgres)
    if known <= SPARK_LEAST_MS:
        small = Reason.of(ReasonCode.ENGINE_SMALL, postgres_ms=round(known), spark_ms=round(SPARK_LEAST_MS))
        return EngineChoice(POSTGRES, small)
    unknown = Reason.of(ReasonCode.ENGINE_UNKNOWN_COST, engine="Spark")
    return EngineChoice(SPARK, Reason.of(ReasonCode.ENGINE_TRIED, why=unknown))


def _compared(past: CostHistory, postgres: Sequence[float], spark: Sequence[float], weight: float) -> EngineChoice:
    costs = {POSTGRES: median_low(postgres), SPARK: median_low(spark)}
    latest = past.engine or POSTGRES
    other = SPARK if latest == POSTGRES else POSTGRES
    reason = Reason.of(
        ReasonCode.ENGINE_COST,
        postgres_ms=round(costs[POSTGRES]),
        postgres_basis=_basis(postgres),
        spark_ms=round(costs[SPARK]),
        spark_basis=_basis(spark),
        weight=f"{weight:g}",
    )
    if costs[other] < (1 - BAND) * costs[latest]:
        return EngineChoice(other, reason)
    extra = costs[other] / max(costs[latest], 0.1) - 1
    if past.engine_in_row >= min(max(SHORTEST_WAIT, ceil(extra / PRICE)), LONGEST_WAIT):
        old = Reason.of(ReasonCode.ENGINE_OLD_COST, times=past.engine_in_row, engine=_name(other))
        return EngineChoice(other, Reason.of(ReasonCode.ENGINE_TRIED, why=old))
    return EngineChoice(latest, reason)


def _basis(costs: Sequence[float]) -> Reason:
    if len(costs) == 1:
        return Reason.of(ReasonCode.ONE_SAMPLE)
    return Reason.of(ReasonCode.MEDIAN, number=len(costs))


def _name(engine: str) -> str:
    return "Spark" if engine == SPARK else "PostgreSQL"
