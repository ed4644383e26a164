"""Which of the four ways a refresh takes: DIFFERENTIAL or FULL, on PostgreSQL or on Spark. Pure.

A way is a mode and an engine. Each is judged by the median cost of its latest warm refreshes (for DIFFERENTIAL: those
with a similar number of changes), plus their median deviation. First the engine of each mode is chosen, then
`cost_model.choose` compares both modes with these engines. A way that was never measured is tried if its minimal cost
is below the cost of the best known way; the extra cost limits how often the other ways are measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import median, median_low

from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import (
    DIFFERENTIAL,
    FULL,
    POSTGRES,
    SPARK,
    CostHistory,
    Sample,
    as_large,
    differential_cost,
)
from pgtrickle.refresh.engine_choice import (
    BAND,
    ENOUGH,
    LATEST,
    LONGEST_WAIT,
    PRICE,
    PUSHED_DOWN,
    SHORTEST_WAIT,
    SPARK_LEAST_MS,
    EngineChoice,
    EngineInput,
    choose_engine,
    named_engine,
)

# Spark's minimal time for each changed row, and for each row of the sources, on two cores.
SPARK_CHANGE_MS, SPARK_SOURCE_ROW_MS = 0.005, 0.0005
CLEARLY = 5  # x the minimal cost of Spark: one refresh that is slower is enough to try Spark


@dataclass(frozen=True, slots=True)
class Ways:
    """The engine of each mode. `past`: the samples for the comparison of the modes. `untried`: a mode to try, because
    its engine was never measured and may be the best, and why."""

    differential: EngineChoice
    full: EngineChoice
    past: CostHistory
    untried: tuple[str, Reason] | None = None

    def engine(self, action: str) -> EngineChoice:
        return self.differential if action == DIFFERENTIAL else self.full


@dataclass(frozen=True, slots=True)
class WayInput:
    """`obstacle(kind)`: why Spark cannot evaluate this kind of refresh now; called only if Spark would be chosen."""

    engine: EngineInput
    rows: int
    source_rows: float
    obstacle: Callable[[str], Reason | None]


def choose_ways(past: CostHistory, way_input: WayInput) -> Ways:
    full = _without_obstacle(FULL, way_input, lambda engine: choose_engine(past, engine))
    best_full = _best_full(past, way_input.engine.weight)
    differential = _without_obstacle(
        DIFFERENTIAL, way_input, lambda engine: choose_delta_engine(past, engine, way_input.rows, best_full)
    )
    if SPARK not in (full.engine, differential.engine) and not past.has_spark:
        return Ways(differential, full, past)
    view = past.seen_with(differential.engine, full.engine, way_input.engine.weight)
    return Ways(differential, full, view, _untried(past, way_input, differential, full, best_full))


def _without_obstacle(kind: str, way_input: WayInput, choose: Callable[[EngineInput], EngineChoice]) -> EngineChoice:
    choice = choose(way_input.engine)
    if choice.engine == SPARK and (obstacle := way_input.obstacle(kind)) is not None:
        return choose(replace(way_input.engine, obstacle=obstacle))
    return choice


def choose_delta_engine(
    past: CostHistory, engine_input: EngineInput, rows: int, best_full: float | None
) -> EngineChoice:
    """The engine of a differential refresh. `best_full`: the cost of the cheapest known full refresh."""
    if (named := named_engine(engine_input)) is not None:
        return named
    # Spark can only save time of the source: waiting for the job that nets the deltas is no reason to try it.
    if all(
        s.engine == POSTGRES and s.source_ms * (1 + engine_input.weight) <= SPARK_LEAST_MS for s in past.differential
    ):
        return PUSHED_DOWN  # without a search for similar samples: the usual case
    samples = {engine: past.deltas_of(engine, engine_input.weight) for engine in (POSTGRES, SPARK)}
    costs = {engine: _cost(known, rows) for engine, known in samples.items()}
    postgres, spark = costs[POSTGRES], costs[SPARK]
    if postgres is None:
        return PUSHED_DOWN
    if spark is None:
        least = SPARK_LEAST_MS + SPARK_CHANGE_MS * rows
        best = postgres if best_full is None else min(postgres, best_full)
        is_known = len(as_large(samples[POSTGRES], rows)) >= ENOUGH or postgres > CLEARLY * least
        if best * (1 - BAND) <= least or not is_known:
            return PUSHED_DOWN
        unknown = Reason.of(ReasonCode.ENGINE_UNKNOWN_COST, engine="Spark")
        return EngineChoice(SPARK, Reason.of(ReasonCode.ENGINE_TRIED, why=unknown))
    reason = Reason.of(
        ReasonCode.ENGINE_DELTA_COST,
        rows=rows,
        postgres_ms=round(postgres),
        spark_ms=round(spark),
        weight=f"{engine_input.weight:g}",
    )
    latest = past.delta_engine or POSTGRES
    other = SPARK if latest == POSTGRES else POSTGRES
    mine, others = (spark, postgres) if latest == SPARK else (postgres, spark)
    if others < (1 - BAND) * mine:
        return EngineChoice(other, reason)
    wait = min(max(SHORTEST_WAIT, ceil((others / max(mine, 0.1) - 1) / PRICE)), LONGEST_WAIT)
    if past.delta_engine_in_row >= wait and max(mine, others) > SPARK_LEAST_MS:
        old = Reason.of(ReasonCode.ENGINE_OLD_COST, times=past.delta_engine_in_row, engine=_name(other))
        return EngineChoice(other, Reason.of(ReasonCode.ENGINE_TRIED, why=old))
    return EngineChoice(latest, reason)


def _cost(samples: Sequence[Sample], rows: int) -> float | None:
    """From refreshes with a similar number of changes; else from the others."""
    near = [s.ms for s in as_large(samples, rows)][-LATEST:]
    if near:
        return with_spread(near)
    estimate = differential_cost(samples, rows)
    return None if estimate is None else estimate.ms


def with_spread(values: Sequence[float]) -> float:
    """The median plus the median deviation: of two ways with similar costs, the one with less variation is chosen."""
    middle = median_low(values)
    return middle + median(abs(v - middle) for v in values)


def _best_full(past: CostHistory, weight: float) -> float | None:
    known = [[s.cost(weight) for s in past.of_engine(engine)][-LATEST:] for engine in (POSTGRES, SPARK)]
    return min((with_spread(values) for values in known if values), default=None)


def _untried(
    past: CostHistory, way_input: WayInput, differential: EngineChoice, full: EngineChoice, best_full: float | None
) -> tuple[str, Reason] | None:
    """A try that the comparison of the modes would never choose, because its cost is unknown."""
    weight = way_input.engine.weight
    deltas = [_cost(past.deltas_of(engine, weight), way_input.rows) for engine in (POSTGRES, SPARK)]
    best = min((cost for cost in [*deltas, best_full] if cost is not None), default=0.0) * (1 - BAND)
    of_changes = SPARK_LEAST_MS + SPARK_CHANGE_MS * way_input.rows
    if _is_new(differential) and not as_large(past.deltas_of(SPARK, weight), way_input.rows) and of_changes < best:
        return DIFFERENTIAL, differential.reason
    of_sources = SPARK_LEAST_MS + SPARK_SOURCE_ROW_MS * way_input.source_rows
    if _is_new(full) and not past.of_engine(SPARK) and of_sources < best:
        return FULL, full.reason
    return None


def _is_new(choice: EngineChoice) -> bool:
    return choice.engine == SPARK and choice.reason.code is ReasonCode.ENGINE_TRIED


def _name(engine: str) -> str:
    return "Spark" if engine == SPARK else "PostgreSQL"
