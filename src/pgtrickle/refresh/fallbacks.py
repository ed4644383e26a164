"""Fallbacks of a refresh: PostgreSQL instead of Spark, FULL instead of DIFFERENTIAL. The reason is the error."""

from __future__ import annotations

from dataclasses import replace

from pgtrickle.db.connect import without_values
from pgtrickle.errors import (
    DefinitionError,
    InexactValueError,
    PgtrickleError,
    ReplicaUnavailableError,
    SparkUnsupportedError,
    TooManyRowsError,
)
from pgtrickle.model.flow import DeltaSizes, Timings
from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.refresh.cost_model import POSTGRES
from pgtrickle.refresh.decide import FULL, Decision
from pgtrickle.refresh.engine_choice import EngineChoice
from pgtrickle.refresh.stages import FailedRefresh, PlannedRefresh

# Spark cannot represent a value, or a replica cannot be used at the cut.
NOT_LOADED_ON_SPARK = (InexactValueError, ReplicaUnavailableError)
# The same, or Spark cannot evaluate the delta.
NO_DELTA_ON_SPARK = (*NOT_LOADED_ON_SPARK, SparkUnsupportedError)


def pushed_down(planned: PlannedRefresh, error: PgtrickleError) -> PlannedRefresh:
    """The same refresh on PostgreSQL, after Spark failed."""
    reason = Reason.of(ReasonCode.ENGINE_VALUE, error=error.message)
    return replace(planned, engine=EngineChoice(POSTGRES, reason), timings=Timings(is_cold=True), sizes=DeltaSizes())


def full_instead(planned: PlannedRefresh, error: PgtrickleError) -> PlannedRefresh:
    """A full refresh instead of a differential one. Of the time so far, only planning counts as a part of FULL."""
    timings = Timings()
    timings.add("plan", planned.timings.parts.get("plan", 0.0))
    decision = Decision(FULL, Reason.of(ReasonCode.DELTA_FAILED, error=without_values(error)))
    return replace(planned, decision=decision, timings=timings, sizes=DeltaSizes())


def may_be_full(failed: FailedRefresh) -> bool:
    """Whether a full refresh may succeed, and the table permits it. A row that was inserted and deleted between
    refreshes may make the query fail (a plain DefinitionError); FULL does not read it."""
    error = failed.error
    is_value = isinstance(error, InexactValueError | TooManyRowsError) or type(error) is DefinitionError
    return is_value and failed.planned.table.refresh_mode == "AUTO"
