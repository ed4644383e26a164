"""Measures: how each aggregate call of a query is maintained, from delta rows and the state of a group.

    invertible (count, sum, avg):  state' = state + sum of weight * value
    min, max:                      state' = least(state, inserted values), recomputed when the extreme was deleted
    all others:                    recomputed for each affected group (float sums, DISTINCT, text under a collation)

    in:  avg(x)
    out: state columns m0_n = count(x), m0_s = sum(x); value = m0_s / m0_n

Calls with the same argument share a measure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.codec import FLOAT4, FLOAT8, INT2, INT4, INTEGERS, NUMERIC, SqlType, exact, numeric_scale, order
from pgtrickle.pipeline.plan.nodes import Aggregate, AggregateCall
from pgtrickle.pipeline.plan.scales import Scales, scales_of

MOST_SCALES = 4  # of one sum: each scale but the smallest has a count in the state


FOLDED = frozenset({"count", "sum", "avg", "min", "max"})  # all others are recomputed
# Digits of a histogram of scales for each scale: a group has fewer than 10^12 values.
_PER_SCALE = 12


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that is computed from a value and added instead of it: it describes the texts of a group's values.

    at_least: 0 for a number with at least `scale` digits after the point, so that these are counted.
    scales: 10^(12 x scale) of a number. The sum is a histogram: twelve digits for each scale, the largest one first.
    minus_zero: 0 for the float -0, so that these are counted.
    """

    what: str
    scale: int = 0

    def sql(self, value: str) -> str:
        if self.what == "at_least":
            return f"CASE WHEN pg_catalog.scale({value}) >= {self.scale} THEN 0 END"
        if self.what == "minus_zero":
            return f"CASE WHEN ({value})::text = '-0' THEN 0 END"
        return f"('1e' || {_PER_SCALE} * pg_catalog.scale({value}))::numeric"


SCALES, MINUS_ZERO = Derived("scales"), Derived("minus_zero")


@dataclass(frozen=True, slots=True)
class Measure:
    """One maintained quantity of a group.

    kind add: `value` is a number (NULL when the row has none); Spark adds it with its sign and counts its weights.
    kind least, greatest: `order` is a number that orders the values, `value` their text.
    kind reread: recomputed; delta rows have no column for it. `state`: (suffix, type) of the state columns n (count),
    s (sum), v (value). `slot`: the position among the measures with columns of the same kind. `derived`: what is added
    instead of the argument itself. `number`: the expression of which `value` is the text. `scale`: the digits of the
    sum after the point, None where they are not known.
    """

    index: int
    kind: str
    slot: int
    value: str | None
    order: str | None
    scale: int | None
    state: tuple[tuple[str, str], ...]
    call: AggregateCall
    derived: Derived | None = None
    number: str | None = None
    base: int = 0  # the type of the value in the state, looked through domains; 0: a number

    def name(self, suffix: str) -> str:
        return f"m{self.index}_{suffix}"


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures, and the SQL over the state row `s` of each call and each key of the query."""

    measures: tuple[Measure, ...]
    values: tuple[str, ...]
    keys: tuple[str, ...]


def filtered_argument(call: AggregateCall) -> str | None:
    """The argument with FILTER folded in.

    A row that fails the filter contributes NULL, which every maintained aggregate skips; the others are recomputed.
    """
    if call.function not in FOLDED:
        return None
    if call.argument is None:
        return None if call.filter is None else f"CASE WHEN {call.filter} THEN 1 END"
    return call.argument if call.filter is None else f"CASE WHEN {call.filter} THEN {call.argument} END"


def has_several_scales(type_: SqlType) -> bool:
    """Whether equal values of a numeric type can have different display scales."""
    return type_.base == NUMERIC and numeric_scale(type_.typmod) is None


def plan_measures(
    aggregate: Aggregate,
    key_types: Sequence[SqlType],
    argument_types: Sequence[SqlType | None],
    result_types: Sequence[SqlType],
    column: Callable[[int], str],
) -> Measures:
    """`column(i)` is the name of the column with the argument of call i; that of key i is q.ki."""
    builder = _Builder(aggregate, argument_types, result_types, column)
    values = tuple(builder.value(i) for i in range(len(aggregate.calls)))
    keys = tuple(builder.key(i, t) for i, t in enumerate(key_types))
    if builder.written_keys > 1:
        # Each key would have the text of one of its values, but possibly no row has all of these texts.
        raise NotDifferentiableError(Reason.of(ReasonCode.LOSSY_KEY))
    return Measures(tuple(builder.measures), values, keys)


class _Builder:
    def __init__(
        self,
        aggregate: Aggregate,
        argument_types: Sequence[SqlType | None],
        result_types: Sequence[SqlType],
        column: Callable[[int], str],
    ) -> None:
        self.aggregate = aggregate
        self.argument_types = argument_types
        self.result_types = result_types
        self.column = column
        self.measures: list[Measure] = []
        self.written_keys = 0  # keys with a measure for their text
        self.shared: dict[tuple[str, str | None], Measure] = {}

    def value(self, i: int) -> str:
        call, type_ = self.aggregate.calls[i], self.argument_types[i]
        if call.function not in FOLDED:
            return self._reread(i)
        if type_ is None:
            return 's."n"'
        if call.distinct and call.function not in ("min", "max"):
            return self._reread(i)
        if call.function == "count":
            # Not IS NOT NULL, which tests each field of a composite value.
            is_one = f"pg_catalog.num_nonnulls({self.column(i)}) = 1"
            value, number = f"CASE WHEN {is_one} THEN '0' END", f"CASE WHEN {is_one} THEN 0 END"
            measure = self._measure(call, "count", "add", value=value, number=number, state=(("n", "bigint"),))
            return f's."{measure.name("n")}"'
        if call.function in ("sum", "avg"):
            return self._sum(i, call, type_)
        kind = "least" if call.function == "min" else "greatest"
        ordered = order(self.column(i), type_, descending=kind == "greatest")  # Spark computes the minimum of both
        if ordered is None:
            return self._reread(i)
        state = (("v", type_.name),)
        measure = self._measure(call, kind, kind, value=exact(self.column(i), type_.base), order=ordered, state=state)
        return f's."{measure.name("v")}"'

    def _sum(self, i: int, call: AggregateCall, type_: SqlType) -> str:
        scales: Scales | None = frozenset({0})
        if type_.base == NUMERIC:
            scales = scales_of(call.argument or "", self.aggregate.input.source)
            if scales is not None and not 1 <= len(scales) <= MOST_SCALES:
                scales = None
        elif type_.base not in INTEGERS:
            return self._reread(i)
        measure = self._measure(
            call,
            "sum",
            "add",
            value=exact(self.column(i), type_.base),
            number=self.column(i),
            scale=None if scales is None else max(scales),
            state=(("n", "bigint"), ("s", "numeric")),
        )
        count, total = f's."{measure.name("n")}"', f's."{measure.name("s")}"'
        if scales is None:
            total = _with_scale(total, self._histogram(call, self.column(i)))
        elif len(scales) > 1:
            total = f"pg_catalog.round({total}, {self._largest_scale(i, scales)})"
        if call.function == "avg":
            return f"(CASE WHEN {count} > 0 THEN {total} / {count}::numeric END)"
        if type_.base in (INT2, INT4):
            total += "::bigint"
        return f"(CASE WHEN {count} > 0 THEN {total} END)"

    def key(self, i: int, type_: SqlType) -> str:
        """A key as one of its rows has it. Of equal numbers that with the most digits is shown; of the zeros of a group
        -0 is shown if all are."""
        shown = f"s.k{i}"
        call = AggregateCall("count", self.aggregate.keys[i], None, distinct=False, sql=self.aggregate.keys[i])
        if has_several_scales(type_):
            self.written_keys += 1
            return f"({_with_scale(shown, self._histogram(call, f'q.k{i}'))})::{type_.name}"
        if type_.base in (FLOAT4, FLOAT8):
            self.written_keys += 1
            name = "float4" if type_.base == FLOAT4 else "float8"
            measure = self._count(call, MINUS_ZERO, f"q.k{i}")
            is_minus = f's."{measure.name("n")}" = s."n"'
            return f"(CASE WHEN {is_minus} THEN '-0'::{name} ELSE {shown} END)::{type_.name}"
        return shown

    def _histogram(self, call: AggregateCall, value: str) -> str:
        """The histogram of the scales of the values in a group: the last value of a scale may be deleted."""
        number = SCALES.sql(value)
        state = (("n", "bigint"), ("s", "numeric"))
        measure = self._measure(
            call, "scales", "add", value=f"{number}::text", number=number, state=state, derived=SCALES
        )
        return f's."{measure.name("s")}"'

    def _largest_scale(self, i: int, scales: Scales) -> str:
        """The scale of a sum is the largest scale of its values. The state counts the values of each scale, because the
        last of them may be deleted."""
        least, *others = sorted(scales)
        cases = ""
        for scale in reversed(others):
            measure = self._count(self.aggregate.calls[i], Derived("at_least", scale), self.column(i))
            cases += f' WHEN s."{measure.name("n")}" > 0 THEN {scale}'
        return f"CASE{cases} ELSE {least} END"

    def _reread(self, i: int) -> str:
        state = (("v", self.result_types[i].declared),)
        base = self.result_types[i].base
        call = self.aggregate.calls[i]
        measure = self._measure(call, call.sql, "reread", state=state, base=base)
        return f's."{measure.name("v")}"'

    def _count(self, call: AggregateCall, derived: Derived, value: str) -> Measure:
        """Counts the values for which a number is derived: a zero, which does not change a sum."""
        number = derived.sql(value)
        what = f"{derived.what} {derived.scale}"
        state = (("n", "bigint"),)
        return self._measure(call, what, "add", value=f"({number})::text", number=number, state=state, derived=derived)

    def _measure(
        self,
        call: AggregateCall,
        what: str,
        kind: str,
        *,
        state: tuple[tuple[str, str], ...],
        value: str | None = None,
        number: str | None = None,
        order: str | None = None,
        scale: int | None = 0,
        derived: Derived | None = None,
        base: int = 0,
    ) -> Measure:
        """A new measure, or that of another call: sum(x) and avg(x) share one."""
        key = (what, filtered_argument(call))
        if key not in self.shared:
            travels = "least", "greatest"
            slot = sum(m.kind == kind or (m.kind in travels and kind in travels) for m in self.measures)
            self.shared[key] = Measure(
                len(self.measures), kind, slot, value, order, scale, state, call, derived, number, base
            )
            self.measures.append(self.shared[key])
        return self.shared[key]


def _with_scale(number: str, histogram: str) -> str:
    """A number with as many digits after the point as the largest scale in a histogram. Not by round(), which
    PostgreSQL limits to 2,000 digits before version 17: that would change the number."""
    scale = f"(pg_catalog.length({histogram}::text) - 1) / {_PER_SCALE}"
    return f"(pg_catalog.trim_scale({number}) + pg_catalog.round(0::numeric, {scale}))"
