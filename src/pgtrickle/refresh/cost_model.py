"""How AUTO chooses between DIFFERENTIAL and FULL, from the costs of earlier refreshes of the table. Pure.

A differential refresh has a fixed cost and one that grows with the number of changes, not always in proportion; a full
refresh always costs about the same. So the prediction for a number of changes is the median of refreshes with a similar
number, else a line through all of them. Because of the medians, one slow refresh (a cold cache, a backup) is not
decisive.

A mode without samples cannot be predicted. So AUTO sometimes tries the mode that seems slower; the expected extra cost
limits how often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from statistics import median, median_low

from pgtrickle.model.reasons import Reason, ReasonCode

AUTO, SPARK, POSTGRES = "auto", "spark", "postgres"  # engines
FULL, DIFFERENTIAL, LOAD = "FULL", "DIFFERENTIAL", "LOAD"  # LOAD: a first load, a less precise sample than a later FULL

# The minimal cost of a changed row (read, netted by Spark, applied): 0.01 to 0.015 ms in benchmarks/incremental.py.
CHANGE_MS = 0.01
QUIET_SECONDS = 60.0  # after CREATE: caches, statistics and the first changes are not representative
LEAST, MOST = 0.5, 4.0  # a prediction is clamped to these x full
FAR = 20.0  # x full: above, no try
AGAIN = 2.0  # x full: above, no second try soon after a slow first one
BAND = 0.1  # by how much the other mode must be cheaper before it is chosen
LIKE_IT = 2.0  # refreshes with half to twice as many changes are similar
FIXED_ROWS = 50  # below, the number of changes is not relevant
ENOUGH_ALIKE = 3
LATEST = 7  # similar refreshes: after a change of the costs, four new ones decide
ON_A_LINE = 24
SMALL_SOURCES = 10_000.0  # rows: below, the share of changes is not relevant
PRICE = 0.1  # share that tries of the other mode may add to the cost of all refreshes
SHORTEST_WAIT, LONGEST_GUESS = 5, 20  # refreshes between two tries; the maximum if the other mode was never measured
DOUBTFUL = 0.3  # x full: below, FULL is hardly cheaper
SELDOM = 5  # x as many refreshes before FULL is tried, while its cost is known from refreshes in the window
RARELY = 10  # x as many, if it is doubtful
IN_CHAIN = 5  # x as many in a chain
UNKNOWN = 5  # x as many before DIFFERENTIAL is tried, while only its least cost is known
LEAST_MS = 0.1  # no refresh takes less
NEAR = 0.8  # x full: above, another FULL costs almost nothing, and is a sample


@dataclass(frozen=True, slots=True)
class Limits:
    """Settings. Above the first two, FULL is assumed to be cheaper; the others control the prediction."""

    max_change_ratio: float
    max_buffer_rows: int
    prediction_ratio: float = 1.5
    prediction_window_s: float = 3600.0
    prediction_min_samples: int = 5
    max_delta_bytes: int = 0  # of a delta; 0: no limit. Checked while it is read
    is_in_chain: bool = False  # a FULL leaves the chain, with the readers of the table
    engine: str = POSTGRES  # of tables without the option
    source_cost_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A past refresh: when (seconds), mode, number of changes, its share of the elapsed time, its engine, and of this
    share the time that the source server spent."""

    at: float
    kind: str
    rows: int
    ms: float
    engine: str = POSTGRES
    source_ms: float = 0.0

    def cost(self, weight: float) -> float:
        return self.ms + weight * self.source_ms


@dataclass(frozen=True, slots=True)
class CostHistory:
    """The latest samples of each mode and size, oldest first, and the length of the latest run of one mode."""

    differential: tuple[Sample, ...] = ()
    full: tuple[Sample, ...] = ()
    latest: str | None = None
    in_row: int = 0
    engine: str | None = None  # of the latest full refresh
    engine_in_row: int = 0
    delta_engine: str | None = None  # of the latest differential refresh
    delta_engine_in_row: int = 0

    def of_engine(self, engine: str) -> list[Sample]:
        """Full refreshes on an engine, without first loads."""
        return [s for s in self.full if s.engine == engine and s.kind == FULL]

    @property
    def has_spark(self) -> bool:
        return any(s.engine == SPARK for s in (*self.full, *self.differential))

    def deltas_of(self, engine: str, weight: float) -> list[Sample]:
        """Differential refreshes on an engine, with costs instead of elapsed times."""
        return [replace(s, ms=s.cost(weight)) for s in self.differential if s.engine == engine]

    def seen_with(self, differential: str, full: str, weight: float) -> CostHistory:
        """With costs instead of elapsed times, and for each mode the refreshes of one engine; if there are none, those
        of the other engine."""
        deltas = self.deltas_of(differential, weight) or self.deltas_of(_other(differential), weight)
        loads = [s for s in self.full if s.engine == full] or self.full
        return replace(self, differential=tuple(deltas), full=tuple(replace(s, ms=s.cost(weight)) for s in loads))

    def with_sample(self, sample: Sample) -> CostHistory:
        if sample.kind == LOAD:  # samples before it may belong to another query
            return CostHistory(full=(sample,), latest=FULL, in_row=1, engine=sample.engine, engine_in_row=1)
        kind = DIFFERENTIAL if sample.kind == DIFFERENTIAL else FULL
        in_row = self.in_row + 1 if kind == self.latest else 1
        if kind == DIFFERENTIAL:
            magnitude = _magnitude(sample.rows)
            same = [s for s in self.differential if s.engine == sample.engine and _magnitude(s.rows) == magnitude]
            replaced = same[0] if len(same) >= LATEST else None
            remaining = tuple(s for s in self.differential if s is not replaced)
            return replace(
                self,
                differential=(*remaining, sample),
                latest=kind,
                in_row=in_row,
                delta_engine=sample.engine,
                delta_engine_in_row=self.delta_engine_in_row + 1 if sample.engine == self.delta_engine else 1,
            )
        same = [s for s in self.full if s.engine == sample.engine]
        replaced = same[0] if len(same) >= LATEST else None
        full = (*(s for s in self.full if s is not replaced), sample)
        engine_in_row = self.engine_in_row + 1 if sample.engine == self.engine else 1
        return replace(self, full=full, latest=kind, in_row=in_row, engine=sample.engine, engine_in_row=engine_in_row)

    @staticmethod
    def of(samples: Sequence[Sample]) -> CostHistory:
        past = CostHistory()
        for sample in samples:
            past = past.with_sample(sample)
        return past


@dataclass(frozen=True, slots=True)
class CostInput:
    """The input of a decision. `age_s`: since CREATE. `last_full_ms`: from the catalog. `untried`: a mode to try,
    because its engine was never measured, and why. `max_fraction`: the maximum ratio of changes to rows of
    the sources of this table, instead of `Limits.max_change_ratio` and for sources of any size."""

    rows: int
    source_rows: float
    age_s: float
    now: float
    last_full_ms: float | None = None
    untried: tuple[str, Reason] | None = None
    max_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    ms: float
    noise: float
    basis: Reason
    is_measured: bool = False  # from refreshes with a similar number of changes
    is_guess: bool = False  # from a line, outside or between the measured numbers


@dataclass(frozen=True, slots=True)
class Choice:
    kind: str
    reason: Reason


def choose(past: CostHistory, cost_input: CostInput, limits: Limits) -> Choice:
    full = full_cost(past, cost_input, limits)
    beyond = _beyond_limits(past, cost_input, limits)
    if beyond is not None:
        if beyond.code is ReasonCode.SLOWER_THAN_FULL and full is not None and _is_doubted(past, cost_input.rows, full):
            tried = Reason.of(ReasonCode.TRIED_DIFFERENTIAL, times=past.in_row, prediction=beyond)
            return Choice(DIFFERENTIAL, tried)
        return Choice(FULL, beyond)
    if cost_input.untried is not None and (cost_input.untried[0] == DIFFERENTIAL or not limits.is_in_chain):
        return Choice(*cost_input.untried)
    if full is None:
        return _silent(cost_input, Reason.of(ReasonCode.NO_FULL_KNOWN))
    known = len(past.differential) + len(past.full)
    if cost_input.age_s < QUIET_SECONDS:
        return _silent(cost_input, Reason.of(ReasonCode.CREATED_RECENTLY, seconds=round(QUIET_SECONDS)))
    if known < limits.prediction_min_samples:
        needed = limits.prediction_min_samples
        return _silent(cost_input, Reason.of(ReasonCode.TOO_FEW_SAMPLES, known=known, needed=needed))
    recent = _recent(past, cost_input, limits)
    differential = differential_cost(recent, cost_input.rows)
    if differential is None:
        return _silent(cost_input, Reason.of(ReasonCode.NONE_ALIKE, known=len(past.differential)))
    return _compared(past, cost_input, limits, differential, full, len(as_large(recent, cost_input.rows)))


def _beyond_limits(past: CostHistory, cost_input: CostInput, limits: Limits) -> Reason | None:
    rows = cost_input.rows
    if limits.max_buffer_rows and rows > limits.max_buffer_rows:
        return Reason.of(ReasonCode.MAX_BUFFER_ROWS, rows=rows, limit=limits.max_buffer_rows)
    if cost_input.max_fraction is not None:
        if cost_input.source_rows > 0 and rows > cost_input.max_fraction * cost_input.source_rows:
            size, limit = round(cost_input.source_rows), str(cost_input.max_fraction)
            return Reason.of(ReasonCode.MAX_DELTA_FRACTION, rows=rows, source_rows=size, limit=limit)
    elif cost_input.source_rows >= SMALL_SOURCES and rows > limits.max_change_ratio * cost_input.source_rows:
        size, limit = round(cost_input.source_rows), str(limits.max_change_ratio)
        return Reason.of(ReasonCode.MAX_CHANGE_RATIO, rows=rows, source_rows=size, limit=limit)
    if len(as_large(past.differential, rows)) >= ENOUGH_ALIKE:
        return None  # their cost is known
    least = rows * CHANGE_MS
    if cost_input.last_full_ms is not None and least > limits.prediction_ratio * cost_input.last_full_ms:
        full_ms = round(cost_input.last_full_ms)
        return Reason.of(ReasonCode.SLOWER_THAN_FULL, rows=rows, least_ms=round(least), full_ms=full_ms)
    return None


def _is_doubted(past: CostHistory, rows: int, full: Estimate) -> bool:
    """Whether to measure what so many changes take. Their least cost is an assumption about the machine."""
    if past.latest != FULL:
        return False
    alike = as_large(past.differential, rows)
    if alike and alike[-1].ms < (1 - BAND) * full.ms:  # the latest try was faster: try again
        return True
    expected = max([rows * CHANGE_MS, *(s.ms for s in alike)])
    return past.in_row >= UNKNOWN * _wait(expected, full.ms)


def _silent(cost_input: CostInput, why: Reason) -> Choice:
    return Choice(DIFFERENTIAL, Reason.of(ReasonCode.NO_PREDICTION, rows=cost_input.rows, why=why))


def held_ms(differential_ms: float, full_ms: float) -> float:
    """A predicted cost, clamped to LEAST and MOST x the cost of FULL."""
    return min(max(differential_ms, LEAST * full_ms), MOST * full_ms)


def _compared(
    past: CostHistory, cost_input: CostInput, limits: Limits, differential: Estimate, full: Estimate, alike: int
) -> Choice:
    held = held_ms(differential.ms, full.ms)
    numbers = Reason.of(
        ReasonCode.PREDICTED,
        rows=cost_input.rows,
        differential_ms=round(differential.ms),
        differential_basis=differential.basis,
        full_ms=round(full.ms),
        full_basis=full.basis,
    )
    if past.latest == FULL:
        is_full = held > (1 - BAND) * full.ms
    else:
        # Clearly slower by any prediction; or measured to be slower by more than noise.
        is_sure = differential.is_measured and differential.ms - differential.noise > full.ms + full.noise
        is_full = held > limits.prediction_ratio * full.ms or (is_sure and held > (1 + BAND) * full.ms)
    # A line extrapolates badly. A few tries decide, and their cost is bounded: one if the prediction is very high, and
    # more only if the first one was faster than that.
    if (
        is_full
        and differential.is_guess
        and alike < ENOUGH_ALIKE
        and differential.ms <= (AGAIN if alike else FAR) * full.ms
    ):
        tried = Reason.of(ReasonCode.TRIED_UNKNOWN, known=alike, needed=ENOUGH_ALIKE, prediction=numbers)
        return Choice(DIFFERENTIAL, tried)
    if is_full and _may_try_differential(past, cost_input, differential, full):
        tried = Reason.of(ReasonCode.TRIED_DIFFERENTIAL, times=past.in_row, prediction=numbers)
        return Choice(DIFFERENTIAL, tried)
    if not is_full and _may_try_full(past, cost_input, limits, differential, full):
        return Choice(FULL, Reason.of(ReasonCode.TRIED_FULL, times=past.in_row, prediction=numbers))
    return Choice(FULL if is_full else DIFFERENTIAL, numbers)


def _may_try_differential(past: CostHistory, cost_input: CostInput, differential: Estimate, full: Estimate) -> bool:
    if past.latest != FULL:
        return False
    alike = as_large(past.differential, cost_input.rows)
    if alike and alike[-1].ms < (1 - BAND) * full.ms:  # the latest try was faster: try again
        return True
    wait = _wait(differential.ms, full.ms)
    return past.in_row >= (wait if differential.is_measured else min(wait, LONGEST_GUESS))


def _may_try_full(
    past: CostHistory, cost_input: CostInput, limits: Limits, differential: Estimate, full: Estimate
) -> bool:
    """At once, where what is known of FULL is little and little can be lost. Else after as many refreshes as keep the
    price of trying low: FULL may have become cheap, or was never measured when it was."""
    if past.latest != DIFFERENTIAL:
        return False
    known = sum(s.kind == FULL and s.at >= cost_input.now - limits.prediction_window_s for s in past.full)
    if known and known < ENOUGH_ALIKE and differential.is_measured and differential.ms > NEAR * full.ms:
        return True
    wait = _wait(full.ms, max(differential.ms, LEAST_MS))
    if known:
        wait *= SELDOM
    if differential.ms < DOUBTFUL * full.ms:
        wait *= RARELY
    if limits.is_in_chain:
        wait *= IN_CHAIN
    return past.in_row >= wait


def _wait(tried_ms: float, usual_ms: float) -> int:
    """Refreshes of the usual mode before the other one is tried, so that tries add at most PRICE to the cost of all."""
    return max(SHORTEST_WAIT, ceil((tried_ms / usual_ms - 1) / PRICE))


# -- estimates
# --------------------------------------------------------------------------------------------------------------


def full_cost(past: CostHistory, cost_input: CostInput, limits: Limits) -> Estimate | None:
    """From the latest full refreshes in the window; else from the last one of any age."""
    later = [s for s in past.full if s.kind == FULL]
    recent = [s for s in later if s.at >= cost_input.now - limits.prediction_window_s]
    times = [s.ms for s in recent or later[-1:] or past.full[-1:]]
    if not times and cost_input.last_full_ms is not None:
        times = [cost_input.last_full_ms]
    if not times:
        return None
    middle = median_low(times[-LATEST:])
    return Estimate(max(middle, LEAST_MS), _spread(times[-LATEST:], middle), _median_of(len(times[-LATEST:])), True)


def differential_cost(samples: Sequence[Sample], rows: int) -> Estimate | None:
    """None without a prediction: too few samples, or all of another size."""
    like_it = as_large(samples, rows)
    alike = [s.ms for s in like_it]
    if len(alike) >= ENOUGH_ALIKE:
        middle = median_low(alike)
        return Estimate(middle, _spread(alike, middle), Reason.of(ReasonCode.MEDIAN_ALIKE, number=len(alike)), True)
    line = _line([s for s in samples if s not in like_it][-ON_A_LINE:]) or _line(samples[-ON_A_LINE:])
    if line is not None:
        fixed, per_row = line
        # One or two similar samples correct the line: downwards completely, since outliers are slow; upwards by half,
        # and completely if both agree.
        guess = fixed + per_row * rows
        middle = median_low([guess, *alike]) if len(alike) != 1 else min(alike[0], (guess + alike[0]) / 2)
        number = len(samples[-ON_A_LINE:])
        basis = Reason.of(ReasonCode.LINE, number=number, fixed_ms=round(fixed), per_row_ms=f"{per_row:.3f}")
        return Estimate(middle, 0.0, basis, is_guess=True)
    smaller = [s.ms for s in samples if s.rows <= rows][-LATEST:]
    if len(smaller) >= ENOUGH_ALIKE:
        return Estimate(median_low(smaller), 0.0, Reason.of(ReasonCode.FEWER_CHANGES, number=len(smaller)))
    return None


def _recent(past: CostHistory, cost_input: CostInput, limits: Limits) -> tuple[Sample, ...]:
    """The samples in the window; if these are too few, the latest of any age, since a table may be due once a day."""
    recent = tuple(s for s in past.differential if s.at >= cost_input.now - limits.prediction_window_s)
    return (
        recent if len(recent) >= limits.prediction_min_samples else past.differential[-limits.prediction_min_samples :]
    )


def as_large(samples: Sequence[Sample], rows: int) -> list[Sample]:
    """The latest ones with half to twice as many changes."""
    return [s for s in samples if _size(rows) / LIKE_IT <= _size(s.rows) <= _size(rows) * LIKE_IT][-LATEST:]


def _other(engine: str) -> str:
    return SPARK if engine == POSTGRES else POSTGRES


def _size(rows: int) -> float:
    return max(rows, FIXED_ROWS)


def _magnitude(rows: int) -> int:
    return int(_size(rows)).bit_length()


def _line(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """(fixed, per row) by the Theil-Sen estimator; None if the sizes hardly vary, because there is no slope then."""
    slopes = [
        (b.ms - a.ms) / (b.rows - a.rows)
        for a, b in combinations(samples, 2)
        if max(_size(a.rows), _size(b.rows)) > LIKE_IT * min(_size(a.rows), _size(b.rows))
    ]
    if len(slopes) < ENOUGH_ALIKE:
        return None
    per_row = max(median(slopes), CHANGE_MS)
    return max(median_low([s.ms - per_row * s.rows for s in samples]), 0.0), per_row


def _spread(values: Sequence[float], middle: float) -> float:
    """The median absolute deviation."""
    return median(abs(v - middle) for v in values)


def _median_of(number: int) -> Reason:
    return Reason.of(ReasonCode.MEDIAN, number=number) if number > 1 else Reason.of(ReasonCode.ONE_SAMPLE)
