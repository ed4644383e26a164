"""What AUTO takes for cheaper, from what refreshes of this table have taken. Pure.

A differential refresh costs a fixed part and one that grows with the changes, not always in proportion; a recomputation
costs about the same each time. So a number of changes is judged by refreshes that had about as many, else by a line
through all of them. Everything is a median: one slow refresh (a cold cache, somebody's backup) decides nothing.

What is never tried is never learned. Now and then the way that seems the slower one is taken; how often is bounded by
what that is expected to cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil
from statistics import median, median_low

from pgtrickle.model.reasons import Reason, ReasonCode

FULL, DIFFERENTIAL, LOAD = "FULL", "DIFFERENTIAL", "LOAD"  # LOAD: a first load, which says less than a later FULL

# What a changed row costs at least (read, netted by Spark, applied): 0.01 to 0.015 ms in benchmarks/incremental.py.
CHANGE_MS = 0.01
QUIET_SECONDS = 60.0  # after CREATE: caches, statistics and the sources' first changes are not those of later
LEAST, MOST = 0.5, 4.0  # a prediction is held between these x full
FAR = 20.0  # x full: above, not even one try
AGAIN = 2.0  # x full: above, no second try soon after a first one that was slow, too
BAND = 0.1  # how much cheaper the other way has to look before it is taken
LIKE_IT = 2.0  # refreshes with half to twice as many changes are alike
FIXED_ROWS = 50  # below, the number of changes makes no difference
ENOUGH_ALIKE = 3
LATEST = 7  # of alike refreshes: a new regime wins after four
ON_A_LINE = 24
SMALL_SOURCES = 10_000.0  # rows: below, the share of changes says nothing
PRICE = 0.1  # what trying the other way may add to the cost of all refreshes
SHORTEST_WAIT, LONGEST_GUESS = 5, 20  # refreshes between two tries; at most, where the other way was never measured
DOUBTFUL = 0.3  # x full: below, a FULL cannot turn out to be the cheaper one
NEAR = 0.8  # x full: above, to take FULL once more costs next to nothing, and tells


@dataclass(frozen=True, slots=True)
class Limits:
    """Above the first two a recomputation is taken to be cheaper. The others are about prediction. Settings all."""

    max_change_ratio: float
    max_buffer_rows: int
    prediction_ratio: float = 1.5
    prediction_window_s: float = 3600.0
    prediction_min_samples: int = 5
    max_delta_bytes: int = 0  # that the changes may bring; 0: no limit. Found out while they are read
    may_try_full: bool = True  # not in a chain: a FULL would leave it


@dataclass(frozen=True, slots=True)
class Sample:
    """A refresh that was done: when (seconds), how, with how many changes, and what it took by itself."""

    at: float
    kind: str
    rows: int
    ms: float


@dataclass(frozen=True, slots=True)
class CostHistory:
    """The latest samples of each kind and size, oldest first, and how often in a row the latest way was taken."""

    differential: tuple[Sample, ...] = ()
    full: tuple[Sample, ...] = ()
    latest: str | None = None
    in_row: int = 0

    def with_sample(self, sample: Sample) -> CostHistory:
        if sample.kind == LOAD:  # what was before it may have been another query
            return CostHistory(full=(sample,), latest=FULL, in_row=1)
        kind = DIFFERENTIAL if sample.kind == DIFFERENTIAL else FULL
        in_row = self.in_row + 1 if kind == self.latest else 1
        if kind == DIFFERENTIAL:
            same = [s for s in self.differential if _magnitude(s.rows) == _magnitude(sample.rows)]
            gone = same[0] if len(same) >= LATEST else None
            kept = tuple(s for s in self.differential if s is not gone)
            return replace(self, differential=(*kept, sample), latest=kind, in_row=in_row)
        return replace(self, full=(*self.full, sample)[-LATEST:], latest=kind, in_row=in_row)

    @staticmethod
    def of(samples: Sequence[Sample]) -> CostHistory:
        past = CostHistory()
        for sample in samples:
            past = past.with_sample(sample)
        return past


@dataclass(frozen=True, slots=True)
class CostInput:
    """A refresh to decide about. `age_s`: since CREATE. `last_full_ms`: what the catalog remembers."""

    rows: int
    source_rows: float
    age_s: float
    now: float
    last_full_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    ms: float
    noise: float
    basis: Reason
    is_measured: bool = False  # by refreshes that had about as many changes
    is_guess: bool = False  # by a line, beyond or between what was measured


@dataclass(frozen=True, slots=True)
class Choice:
    kind: str
    reason: Reason
    predicted_ms: float | None = None
    full_ms: float | None = None


def choose(past: CostHistory, asked: CostInput, limits: Limits) -> Choice:
    beyond = _beyond_limits(past, asked, limits)
    if beyond is not None:
        return Choice(FULL, beyond)
    full = full_cost(past, asked, limits)
    if full is None:
        return _silent(asked, Reason.of(ReasonCode.NO_FULL_KNOWN))
    known = len(past.differential) + len(past.full)
    if asked.age_s < QUIET_SECONDS:
        return _silent(asked, Reason.of(ReasonCode.CREATED_RECENTLY, seconds=round(QUIET_SECONDS)))
    if known < limits.prediction_min_samples:
        needed = limits.prediction_min_samples
        return _silent(asked, Reason.of(ReasonCode.TOO_FEW_SAMPLES, known=known, needed=needed))
    recent = _recent(past, asked, limits)
    differential = differential_cost(recent, asked.rows)
    if differential is None:
        return _silent(asked, Reason.of(ReasonCode.NONE_ALIKE, known=len(past.differential)))
    return _compared(past, asked, limits, differential, full, len(_alike(recent, asked.rows)))


def _beyond_limits(past: CostHistory, asked: CostInput, limits: Limits) -> Reason | None:
    rows = asked.rows
    if limits.max_buffer_rows and rows > limits.max_buffer_rows:
        return Reason.of(ReasonCode.MAX_BUFFER_ROWS, rows=rows, limit=limits.max_buffer_rows)
    if asked.source_rows >= SMALL_SOURCES and rows > limits.max_change_ratio * asked.source_rows:
        size, limit = round(asked.source_rows), str(limits.max_change_ratio)
        return Reason.of(ReasonCode.MAX_CHANGE_RATIO, rows=rows, source_rows=size, limit=limit)
    if len(_alike(past.differential, rows)) >= ENOUGH_ALIKE:
        return None  # it is known what they take
    least = rows * CHANGE_MS
    if asked.last_full_ms is not None and least > limits.prediction_ratio * asked.last_full_ms:
        full_ms = round(asked.last_full_ms)
        return Reason.of(ReasonCode.SLOWER_THAN_FULL, rows=rows, least_ms=round(least), full_ms=full_ms)
    return None


def _silent(asked: CostInput, why: Reason) -> Choice:
    return Choice(DIFFERENTIAL, Reason.of(ReasonCode.NO_PREDICTION, rows=asked.rows, why=why))


def _compared(
    past: CostHistory, asked: CostInput, limits: Limits, differential: Estimate, full: Estimate, alike: int
) -> Choice:
    held = min(max(differential.ms, LEAST * full.ms), MOST * full.ms)
    numbers = Reason.of(
        ReasonCode.PREDICTED,
        rows=asked.rows,
        differential_ms=round(differential.ms),
        differential_basis=differential.basis,
        full_ms=round(full.ms),
        full_basis=full.basis,
    )
    if past.latest == FULL:
        is_full = held > (1 - BAND) * full.ms
    else:
        # Clearly slower by any estimate; or slower by what was measured, and not by noise.
        is_sure = differential.is_measured and differential.ms - differential.noise > full.ms + full.noise
        is_full = held > limits.prediction_ratio * full.ms or (is_sure and held > (1 + BAND) * full.ms)
    # A line far beyond what was measured says little. As many tries as can tell are soon done, and bounded: one, where
    # the line is very high, and more only when that was not.
    if (
        is_full
        and differential.is_guess
        and alike < ENOUGH_ALIKE
        and differential.ms <= (AGAIN if alike else FAR) * full.ms
    ):
        tried = Reason.of(ReasonCode.TRIED_UNKNOWN, known=alike, needed=ENOUGH_ALIKE, prediction=numbers)
        return Choice(DIFFERENTIAL, tried, held, full.ms)
    if is_full and _may_try_differential(past, asked, differential, full):
        tried = Reason.of(ReasonCode.TRIED_DIFFERENTIAL, times=past.in_row, prediction=numbers)
        return Choice(DIFFERENTIAL, tried, held, full.ms)
    if not is_full and limits.may_try_full and _may_try_full(past, asked, limits, differential, full):
        return Choice(FULL, Reason.of(ReasonCode.TRIED_FULL, times=past.in_row, prediction=numbers), held, full.ms)
    return Choice(FULL if is_full else DIFFERENTIAL, numbers, held, full.ms)


def _may_try_differential(past: CostHistory, asked: CostInput, differential: Estimate, full: Estimate) -> bool:
    if past.latest != FULL:
        return False
    alike = _alike(past.differential, asked.rows)
    if alike and alike[-1].ms < (1 - BAND) * full.ms:  # the latest try was worth it: is that so now?
        return True
    wait = max(SHORTEST_WAIT, ceil((differential.ms / full.ms - 1) / PRICE))
    return past.in_row >= (wait if differential.is_measured else min(wait, LONGEST_GUESS))


def _may_try_full(past: CostHistory, asked: CostInput, limits: Limits, differential: Estimate, full: Estimate) -> bool:
    """Where what is known of FULL is a first load, or old, or little, and little can be lost."""
    known = sum(s.kind == FULL and s.at >= asked.now - limits.prediction_window_s for s in past.full)
    if past.latest != DIFFERENTIAL or differential.ms < DOUBTFUL * full.ms:
        return False
    if known:
        return known < ENOUGH_ALIKE and differential.is_measured and differential.ms > NEAR * full.ms
    return past.in_row >= max(SHORTEST_WAIT, ceil((full.ms / differential.ms - 1) / PRICE))


# -- estimates
# --------------------------------------------------------------------------------------------------------------


def full_cost(past: CostHistory, asked: CostInput, limits: Limits) -> Estimate | None:
    """By the latest recomputations in the window; else by the last one, whenever that was."""
    later = [s for s in past.full if s.kind == FULL]
    recent = [s for s in later if s.at >= asked.now - limits.prediction_window_s]
    times = [s.ms for s in recent or later[-1:] or past.full[-1:]]
    if not times and asked.last_full_ms is not None:
        times = [asked.last_full_ms]
    if not times:
        return None
    middle = median_low(times[-LATEST:])
    return Estimate(max(middle, 0.1), _spread(times[-LATEST:], middle), _median_of(len(times[-LATEST:])), True)


def differential_cost(samples: Sequence[Sample], rows: int) -> Estimate | None:
    """None where nothing that is known tells: too few, or all of another size."""
    like_it = _alike(samples, rows)
    alike = [s.ms for s in like_it]
    if len(alike) >= ENOUGH_ALIKE:
        middle = median_low(alike)
        return Estimate(middle, _spread(alike, middle), Reason.of(ReasonCode.MEDIAN_ALIKE, number=len(alike)), True)
    line = _line([s for s in samples if s not in like_it][-ON_A_LINE:]) or _line(samples[-ON_A_LINE:])
    if line is not None:
        fixed, per_row = line
        # One or two that are like it correct the line: down at once, since only slowness comes by chance; up half the
        # way, and all of it when both agree.
        guess = fixed + per_row * rows
        middle = median_low([guess, *alike]) if len(alike) != 1 else min(alike[0], (guess + alike[0]) / 2)
        number = len(samples[-ON_A_LINE:])
        basis = Reason.of(ReasonCode.LINE, number=number, fixed_ms=round(fixed), per_row_ms=f"{per_row:.3f}")
        return Estimate(middle, 0.0, basis, is_guess=True)
    smaller = [s.ms for s in samples if s.rows <= rows][-LATEST:]
    if len(smaller) >= ENOUGH_ALIKE:
        return Estimate(median_low(smaller), 0.0, Reason.of(ReasonCode.FEWER_CHANGES, number=len(smaller)))
    return None


def _recent(past: CostHistory, asked: CostInput, limits: Limits) -> tuple[Sample, ...]:
    """Those in the window; where they are too few, the latest ones of any age, since a table may be due once a day."""
    recent = tuple(s for s in past.differential if s.at >= asked.now - limits.prediction_window_s)
    return (
        recent if len(recent) >= limits.prediction_min_samples else past.differential[-limits.prediction_min_samples :]
    )


def _alike(samples: Sequence[Sample], rows: int) -> list[Sample]:
    return [s for s in samples if _size(rows) / LIKE_IT <= _size(s.rows) <= _size(rows) * LIKE_IT][-LATEST:]


def _size(rows: int) -> float:
    return max(rows, FIXED_ROWS)


def _magnitude(rows: int) -> int:
    return int(_size(rows)).bit_length()


def _line(samples: Sequence[Sample]) -> tuple[float, float] | None:
    """(fixed, per row) by medians over pairs (Theil and Sen); None where sizes hardly vary: no slope is known then."""
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
