"""Which engine evaluates a full refresh, from recorded costs."""

from __future__ import annotations

import pytest

from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import DIFFERENTIAL, FULL, LOAD, POSTGRES, SPARK, CostHistory, Sample
from pgtrickle.refresh.engine_choice import LONGEST_WAIT, SPARK_LEAST_MS, EngineChoice, EngineInput, choose_engine

UNSUPPORTED = Reason.of(ReasonCode.ENGINE_UNSUPPORTED, construct="jsonb_agg")


def full(engine: str, ms: float, source_ms: float) -> Sample:
    return Sample(0.0, FULL, 0, ms, engine, source_ms)


def asked(
    option: str | None = None, setting: str = "auto", weight: float = 1.0, obstacle: Reason | None = None
) -> EngineInput:
    return EngineInput(option, setting, weight, obstacle)


def choose(samples: list[Sample], what: EngineInput) -> EngineChoice:
    return choose_engine(CostHistory.of(samples), what)


@pytest.mark.parametrize("engine", [SPARK, POSTGRES])
def test_named_engine_is_taken_whatever_it_costs(engine: str) -> None:
    samples = [full(SPARK, 5, 0), full(POSTGRES, 5000, 5000), full(SPARK, 5000, 5000)]
    assert choose(samples, asked(engine)).reason == Reason.of(ReasonCode.ENGINE_NAMED, engine=engine)
    assert choose(samples, asked(engine)).engine == engine
    assert choose(samples, asked(setting=engine)).reason == Reason.of(ReasonCode.ENGINE_SETTING, engine=engine)


def test_option_precedes_the_setting() -> None:
    assert choose([], asked("postgres", "spark")).engine == POSTGRES
    assert choose([full(POSTGRES, 9000, 9000)] * 3, asked("auto", "postgres")).engine == SPARK


def test_query_that_spark_cannot_evaluate_stays_on_postgresql() -> None:
    samples = [full(POSTGRES, 9000, 9000), full(SPARK, 1, 1)]
    assert choose(samples, asked(obstacle=UNSUPPORTED)) == EngineChoice(POSTGRES, UNSUPPORTED)


def test_postgresql_is_measured_first_and_small_tables_stay_there() -> None:
    assert choose([], asked()).engine == POSTGRES
    small = choose([full(POSTGRES, SPARK_LEAST_MS / 2, SPARK_LEAST_MS / 2)] * 3, asked())
    assert small.engine == POSTGRES
    assert small.reason.code is ReasonCode.ENGINE_SMALL


def test_spark_is_tried_when_postgresql_costs_more_than_spark_at_least() -> None:
    slow = full(POSTGRES, SPARK_LEAST_MS, SPARK_LEAST_MS)
    tried = choose([slow] * 3, asked())
    assert (tried.engine, tried.reason.code) == (SPARK, ReasonCode.ENGINE_TRIED)
    assert choose([slow] * 2, asked()).engine == POSTGRES
    assert choose([full(POSTGRES, 1, 1), slow, full(POSTGRES, 1, 1)], asked()).engine == POSTGRES
    assert choose([Sample(0.0, LOAD, 0, 9000, POSTGRES, 9000)], asked()).engine == POSTGRES


def test_weight_of_the_source_decides() -> None:
    samples = [full(POSTGRES, 1000, 1000)] * 3 + [full(SPARK, 1500, 50)] * 3
    assert choose(samples, asked(weight=0.0)).engine == POSTGRES
    assert choose(samples, asked(weight=1.0)).engine == SPARK
    assert choose(samples, asked(weight=20.0)).engine == SPARK


def test_one_slow_refresh_decides_nothing_and_three_decide() -> None:
    samples = [full(POSTGRES, 1000, 1000)] * 3 + [full(SPARK, 800, 50)] * 4
    assert choose([*samples, full(SPARK, 9000, 50)], asked()).engine == SPARK
    assert choose([*samples, *[full(SPARK, 9000, 50)] * 3], asked()).engine == POSTGRES


def test_engine_that_is_not_chosen_is_measured_again_and_not_too_often() -> None:
    past = CostHistory.of([full(POSTGRES, 1000, 1000), full(SPARK, 400, 100)])
    chosen = []
    for _ in range(300):
        choice = choose_engine(past, asked())
        chosen.append(choice.engine)
        cost = 1000.0 if choice.engine == POSTGRES else 400.0
        past = past.with_sample(full(choice.engine, cost, cost if choice.engine == POSTGRES else 100.0))
    tries = chosen.count(POSTGRES)
    assert 2 <= tries <= 15
    assert tries * (2000 - 500) <= 0.11 * 300 * 500


def test_an_engine_far_more_expensive_is_still_measured() -> None:
    past = CostHistory.of([full(POSTGRES, 1, 1), full(SPARK, 100_000, 0)])
    for _ in range(LONGEST_WAIT + 1):
        choice = choose_engine(past, asked())
        past = past.with_sample(full(choice.engine, 1, 1))
    assert past.engine == SPARK or any(s.engine == SPARK and s.ms == 1 for s in past.full)


def test_differential_refreshes_do_not_count_between_two_measurements() -> None:
    past = CostHistory.of([full(SPARK, 1000, 10), full(POSTGRES, 100, 100)])
    for _ in range(200):
        past = past.with_sample(Sample(0.0, DIFFERENTIAL, 5, 1.0))
    assert past.engine_in_row == 1


def test_new_definition_forgets_both_engines() -> None:
    past = CostHistory.of([full(SPARK, 1000, 10), full(POSTGRES, 1000, 1000), Sample(0.0, LOAD, 0, 50, POSTGRES, 50)])
    assert choose_engine(past, asked()).reason.code is ReasonCode.ENGINE_UNKNOWN_COST


def test_cost_history_of_one_engine_has_weighted_costs() -> None:
    past = CostHistory.of(
        [full(POSTGRES, 10, 10), full(SPARK, 20, 1), Sample(0.0, DIFFERENTIAL, 5, 1.0, POSTGRES, 0.5)]
    )
    at = past.seen_with(POSTGRES, SPARK, 2.0)
    assert [s.ms for s in at.full] == [22.0]
    assert [s.ms for s in at.differential] == [2.0]
