"""Which of the four ways a refresh takes, from recorded costs."""

from __future__ import annotations

import pytest

from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import (
    DIFFERENTIAL,
    FULL,
    POSTGRES,
    SPARK,
    CostHistory,
    CostInput,
    Limits,
    Sample,
    choose,
)
from pgtrickle.refresh.engine_choice import LONGEST_WAIT, PUSHED_DOWN, SPARK_LEAST_MS, EngineInput
from pgtrickle.refresh.way_choice import WayInput, Ways, choose_ways, with_spread

LIMITS = Limits(max_change_ratio=0.15, max_buffer_rows=0)
OBSTACLE = Reason.of(ReasonCode.ENGINE_UNSUPPORTED, construct="jsonb_agg")
ROWS = 10_000


def sample(kind: str, engine: str, ms: float, source_ms: float | None = None, rows: int = ROWS) -> Sample:
    spent = (ms if engine == POSTGRES else 0.0) if source_ms is None else source_ms
    return Sample(0.0, kind, rows, ms, engine, spent)


def ways(
    samples: list[Sample],
    *,
    option: str | None = None,
    setting: str = "auto",
    weight: float = 0.0,
    obstacle: Reason | None = None,
    rows: int = ROWS,
) -> Ways:
    engine = EngineInput(option, setting, weight, None)
    return choose_ways(CostHistory.of(samples), WayInput(engine, rows, 1_000_000, lambda _kind: obstacle))


def taken(samples: list[Sample], *, weight: float = 0.0, rows: int = ROWS) -> tuple[str, str]:
    """Mode and engine of a table that is AUTO in both."""
    found = ways(samples, weight=weight, rows=rows)
    choice = choose(found.past, CostInput(rows, 1_000_000, 1e6, 0.0, None, found.untried), LIMITS)
    return choice.kind, found.engine(choice.kind).engine


@pytest.mark.parametrize("engine", [SPARK, POSTGRES])
def test_named_engine_evaluates_changes_whatever_it_costs(engine: str) -> None:
    slow = [sample(DIFFERENTIAL, engine, 90_000)] * 3
    assert ways(slow, option=engine).differential.engine == engine
    assert ways(slow, option=engine).differential.reason == Reason.of(ReasonCode.ENGINE_NAMED, engine=engine)
    assert ways(slow, setting=engine).differential.reason == Reason.of(ReasonCode.ENGINE_SETTING, engine=engine)


def test_waiting_for_the_netting_job_is_no_reason_to_try_spark() -> None:
    waited = [sample(DIFFERENTIAL, POSTGRES, 20 * SPARK_LEAST_MS, source_ms=3.0)] * 5
    assert ways(waited, weight=1.0).differential is PUSHED_DOWN
    busy = [sample(DIFFERENTIAL, POSTGRES, 20 * SPARK_LEAST_MS)] * 5
    assert ways(busy, weight=1.0).differential.engine == SPARK


def test_obstacle_leaves_changes_to_postgresql_and_is_the_reason() -> None:
    found = ways([], option="spark", obstacle=OBSTACLE)
    assert (found.differential.engine, found.differential.reason) == (POSTGRES, OBSTACLE)


def test_obstacle_is_not_asked_for_small_changes() -> None:
    def asked(_kind: str) -> Reason | None:
        raise AssertionError("the replicas were looked at")

    past = CostHistory.of([sample(DIFFERENTIAL, POSTGRES, 5), sample(FULL, POSTGRES, 50)])
    found = choose_ways(past, WayInput(EngineInput(None, "auto", 1.0, None), 3, 1e6, asked))
    assert found.differential == PUSHED_DOWN
    assert found.past is past


def test_changes_are_tried_on_spark_when_every_known_way_costs_more_than_spark_at_least() -> None:
    slow = [sample(FULL, POSTGRES, 5_000), *[sample(DIFFERENTIAL, POSTGRES, 9_000)] * 3]
    found = ways(slow)
    assert found.differential.engine == SPARK
    assert found.differential.reason.code is ReasonCode.ENGINE_TRIED
    assert found.untried is not None
    assert taken(slow) == (DIFFERENTIAL, SPARK)
    quick = [sample(FULL, POSTGRES, SPARK_LEAST_MS / 4), *[sample(DIFFERENTIAL, POSTGRES, 9_000)] * 3]
    assert ways(quick).differential.engine == POSTGRES
    assert taken(quick * 2) == (FULL, POSTGRES)


def test_the_cheapest_of_four_known_ways_is_taken() -> None:
    costs = {
        (DIFFERENTIAL, POSTGRES): 9_000.0,
        (DIFFERENTIAL, SPARK): 2_500.0,
        (FULL, POSTGRES): 6_000.0,
        (FULL, SPARK): 4_000.0,
    }
    for best in costs:
        known = costs | {best: 1_200.0}
        samples = [sample(kind, engine, ms) for (kind, engine), ms in known.items() for _ in range(3)]
        samples += [sample(*best, 1_200.0)]  # the latest: nothing is due to be measured again
        assert taken(samples) == best


def test_weight_of_source_time_moves_changes_to_spark() -> None:
    samples = [sample(DIFFERENTIAL, POSTGRES, 2_000)] * 3 + [sample(DIFFERENTIAL, SPARK, 3_000, 200)] * 3
    samples += [sample(FULL, POSTGRES, 20_000)] * 3
    assert ways(samples, weight=0).differential.engine == POSTGRES
    assert ways(samples, weight=1).differential.engine == SPARK


def test_number_of_changes_decides_the_engine() -> None:
    few = [sample(DIFFERENTIAL, POSTGRES, 20, rows=10)] * 4
    many = [sample(DIFFERENTIAL, POSTGRES, 9_000)] * 3 + [sample(DIFFERENTIAL, SPARK, 2_000)] * 3
    assert ways(few + many, rows=10).differential.engine == POSTGRES
    assert ways(few + many).differential.engine == SPARK


def test_other_engine_is_measured_again_within_limits() -> None:
    past = CostHistory.of([sample(DIFFERENTIAL, POSTGRES, 3_000)] * 3 + [sample(DIFFERENTIAL, SPARK, 6_000)])
    tries = 0
    for _ in range(10 * LONGEST_WAIT):
        engine = EngineInput(None, "auto", 0.0, None)
        chosen = choose_ways(past, WayInput(engine, ROWS, 1e6, lambda _kind: None)).differential.engine
        tries += chosen == SPARK
        past = past.with_sample(sample(DIFFERENTIAL, chosen, 3_000 if chosen == POSTGRES else 6_000))
    assert 0 < tries <= 10 * LONGEST_WAIT * 0.12


def test_engine_that_has_become_cheaper_is_found() -> None:
    past = CostHistory.of([sample(DIFFERENTIAL, POSTGRES, 3_000)] * 3 + [sample(DIFFERENTIAL, SPARK, 6_000)])
    engines = []
    for _ in range(60):
        engine = EngineInput(None, "auto", 0.0, None)
        chosen = choose_ways(past, WayInput(engine, ROWS, 1e6, lambda _kind: None)).differential.engine
        engines.append(chosen)
        past = past.with_sample(sample(DIFFERENTIAL, chosen, 3_000 if chosen == POSTGRES else 500))
    assert engines[-5:] == [SPARK] * 5


def test_of_equal_medians_the_steadier_way_costs_less() -> None:
    assert with_spread([100, 100, 100]) < with_spread([50, 100, 150])
    assert with_spread([100, 100, 9_000]) == 100
