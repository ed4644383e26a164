"""Measures: how each aggregate call of a query is maintained, from delta rows and the state of a group.

    invertible (count, sum, avg):  state' = state + sum of weight * value
    min, max:                      state' = least(state, inserted values), recomputed when the extreme was deleted
    all others:                    recomputed for each affected group (float sums, DISTINCT, text under a collation)

    in:  avg(x)
    out: state columns m0_n = count(x), m0_s = sum(x); value = m0_s / m0_n

Calls with the same argument share a measure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.codec import INT2, INT4, INTEGERS, NUMERIC, SqlType, exact, order
from pgtrickle.pipeline.plan.nodes import Aggregate, AggregateCall, CallPlace
from pgtrickle.pipeline.plan.scales import Scales, scales_of

MOST_SCALES = 4  # of one sum: each scale but the smallest has a count in the state


FOLDED = frozenset({"count", "sum", "avg", "min", "max"})  # all others are recomputed


@dataclass(frozen=True, slots=True)
class Measure:
    """One maintained quantity of a group.

    kind add: `value` is a number (NULL when the row has none); Spark adds it with its sign and counts its weights.
    kind least, greatest: `order` is a number that orders the values, `value` their text.
    kind reread: recomputed; delta rows have no column for it. `state`: (suffix, type) of the state columns n (count),
    s (sum), v (value). `slot`: the position among the measures with columns of the same kind. `min_scale`: counts the
    values with at least so many digits after the point. `number`: the expression of which `value` is the text.
    `scale`: the digits of the sum after the point, None where they are not visible.
    """

    index: int
    kind: str
    slot: int
    value: str | None
    order: str | None
    scale: int | None
    state: tuple[tuple[str, str], ...]
    call: AggregateCall
    min_scale: int | None = None
    number: str | None = None
    base: int = 0  # the type of the value in the state, looked through domains; 0: a number

    def name(self, suffix: str) -> str:
        return f"m{self.index}_{suffix}"


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures, and for each call of the query the SQL that computes its value from the state row `s`."""

    measures: tuple[Measure, ...]
    values: tuple[str, ...]


def filtered_argument(call: AggregateCall) -> str | None:
    """The argument with FILTER folded in.

    A row that fails the filter contributes NULL, which every maintained aggregate skips; the others are recomputed.
    """
    if call.function not in FOLDED:
        return None
    if call.argument is None:
        return None if call.filter is None else f"CASE WHEN {call.filter} THEN 1 END"
    return call.argument if call.filter is None else f"CASE WHEN {call.filter} THEN {call.argument} END"


_SHOWS_SCALE = re.compile(
    r"[/%^]|\|\||\b(?!AND\b|OR\b|NOT\b)\w+\s*\(|::(?!numeric\b|bigint\b|integer\b|smallint\b|double\b|real\b)"
)


def exposes_scale(text: str) -> bool:
    """Whether the text around a number does more than compare, add or multiply it, so that its scale is visible."""
    return bool(_SHOWS_SCALE.search(text))


def plan_measures(
    aggregate: Aggregate,
    argument_types: Sequence[SqlType | None],
    result_types: Sequence[SqlType],
    column: Callable[[int], str],
) -> Measures:
    """`column(i)` is the name of the column with the argument of call i."""
    builder = _Builder(aggregate, argument_types, result_types, column)
    values = tuple(builder.value(i) for i in range(len(aggregate.calls)))
    return Measures(tuple(builder.measures), values)


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
            # Not IS NOT NULL, which for a composite value asks for each of its fields.
            is_one = f"pg_catalog.num_nonnulls({self.column(i)}) = 1"
            measure = self._count(i, "count", is_one)
            return f's."{measure.name("n")}"'
        if call.function in ("sum", "avg"):
            return self._sum(i, call, type_)
        kind = "least" if call.function == "min" else "greatest"
        ordered = order(self.column(i), type_, descending=kind == "greatest")  # Spark looks for the least of either
        if ordered is None:
            return self._reread(i)
        state = (("v", type_.name),)
        measure = self._measure(i, kind, kind, value=exact(self.column(i), type_.base), order=ordered, state=state)
        return f's."{measure.name("v")}"'

    def _sum(self, i: int, call: AggregateCall, type_: SqlType) -> str:
        scales: Scales | None = frozenset({0})
        if type_.base == NUMERIC:
            scales = scales_of(call.argument or "", self.aggregate.input.source)
            if scales is not None and not 1 <= len(scales) <= MOST_SCALES:
                scales = None
            if scales is None and (call.function == "avg" or not self._only_compared(i)):
                return self._reread(i)
        elif type_.base not in INTEGERS:
            return self._reread(i)
        measure = self._measure(
            i,
            "sum",
            "add",
            value=exact(self.column(i), type_.base),
            number=self.column(i),
            scale=None if scales is None else max(scales),
            state=(("n", "bigint"), ("s", "numeric")),
        )
        count, total = f's."{measure.name("n")}"', f's."{measure.name("s")}"'
        if scales is not None and len(scales) > 1:
            total = f"pg_catalog.round({total}, {self._largest_scale(i, scales)})"
        if call.function == "avg":
            return f"(CASE WHEN {count} > 0 THEN {total} / {count}::numeric END)"
        if type_.base in (INT2, INT4):
            total += "::bigint"
        elif scales is None:
            total = f"pg_catalog.trim_scale({total})"
        return f"(CASE WHEN {count} > 0 THEN {total} END)"

    def _largest_scale(self, i: int, scales: Scales) -> str:
        """The scale of a sum is the largest scale of its values. The state counts the values of each scale, because the
        last of them may be deleted."""
        least, *others = sorted(scales)
        cases = ""
        for scale in reversed(others):
            is_one = f"pg_catalog.scale({self.column(i)}) >= {scale}"
            measure = self._count(i, f"scale {scale}", is_one, min_scale=scale)
            cases += f' WHEN s."{measure.name("n")}" > 0 THEN {scale}'
        return f"CASE{cases} ELSE {least} END"

    def _only_compared(self, i: int) -> bool:
        """Whether the scale of a sum is not visible: the sum is a column by itself, or is compared in HAVING."""
        if self.aggregate.layers:
            return False
        place = CallPlace(i)
        if any(place in o.parts and len(o.parts) > 1 for o in self.aggregate.outputs):
            return False
        having = self.aggregate.having or ()
        text = " ".join(p for p in having if isinstance(p, str))
        return place not in having or not exposes_scale(text)

    def _reread(self, i: int) -> str:
        state = (("v", self.result_types[i].declared),)
        base = self.result_types[i].base
        measure = self._measure(i, self.aggregate.calls[i].sql, "reread", state=state, base=base)
        return f's."{measure.name("v")}"'

    def _count(self, i: int, what: str, is_one: str, min_scale: int | None = None) -> Measure:
        """Counts the rows for which a condition holds: each sends a zero, which does not change a sum."""
        value, number = f"CASE WHEN {is_one} THEN '0' END", f"CASE WHEN {is_one} THEN 0 END"
        return self._measure(i, what, "add", value=value, number=number, state=(("n", "bigint"),), min_scale=min_scale)

    def _measure(
        self,
        i: int,
        what: str,
        kind: str,
        *,
        state: tuple[tuple[str, str], ...],
        value: str | None = None,
        number: str | None = None,
        order: str | None = None,
        scale: int | None = 0,
        min_scale: int | None = None,
        base: int = 0,
    ) -> Measure:
        """A new measure, or that of another call: sum(x) and avg(x) share one."""
        call = self.aggregate.calls[i]
        key = (what, filtered_argument(call))
        if key not in self.shared:
            travels = "least", "greatest"
            slot = sum(m.kind == kind or (m.kind in travels and kind in travels) for m in self.measures)
            self.shared[key] = Measure(
                len(self.measures), kind, slot, value, order, scale, state, call, min_scale, number, base
            )
            self.measures.append(self.shared[key])
        return self.shared[key]
