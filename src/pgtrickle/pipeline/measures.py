"""How each aggregate call of a query is maintained: what the leaf sends, what Spark folds, what the state keeps.

Invertible aggregates add weighted values. MIN and MAX keep the extreme and are read again for a group whose extreme was
deleted. Everything else (float sums, DISTINCT, text ordered by a collation) is read again for each touched group.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pgtrickle.pipeline.carriers import INT2, INT4, INTEGERS, NUMERIC, Carried, SqlType, exact, order
from pgtrickle.pipeline.nodes import Aggregate, AggregateCall, CallPlace
from pgtrickle.pipeline.scales import scale_of

UNKNOWN_SCALE = 18


@dataclass(frozen=True, slots=True)
class Measure:
    """One folded quantity.

    `columns` are leaf columns over the row's argument; `state` are (suffix, type) of state columns.
    """

    index: int
    kind: str  # count, sum, min, max, recompute
    columns: tuple[Carried, ...]
    state: tuple[tuple[str, str], ...]
    call: AggregateCall

    def name(self, suffix: str) -> str:
        return f"m{self.index}_{suffix}"


@dataclass(frozen=True, slots=True)
class Measures:
    """All measures, and for each call of the query the SQL that computes its value from the state row `s`."""

    measures: tuple[Measure, ...]
    values: tuple[str, ...]


def argument(call: AggregateCall) -> str | None:
    """The argument with FILTER folded in.

    A row that fails the filter contributes NULL, which every aggregate here skips.
    """
    if call.argument is None:
        return None if call.filter is None else f"CASE WHEN {call.filter} THEN 1 END"
    return call.argument if call.filter is None else f"CASE WHEN {call.filter} THEN {call.argument} END"


def plan_measures(
    aggregate: Aggregate,
    argument_types: Sequence[SqlType | None],
    result_types: Sequence[SqlType],
    column: Callable[[int], str],
) -> Measures:
    """`column(i)` names the leaf column that holds call i's argument."""
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
        if type_ is None:
            return 's."n"'
        if call.distinct and call.function not in ("min", "max"):
            return self._recompute(i)
        if call.function == "count":
            # Not IS NOT NULL, which for a composite value asks for each of its fields.
            sql = f"pg_catalog.num_nonnulls({self.column(i)})::int8"
            measure = self._measure(i, "count", (Carried("long", sql),), (("n", "bigint"),))
            return f's."{measure.name("n")}"'
        if call.function in ("sum", "avg"):
            return self._sum(i, call, type_)
        ordered = order(self.column(i), type_)
        if ordered is None:
            return self._recompute(i)
        measure = self._measure(
            i,
            call.function,
            (ordered, Carried("string", exact(self.column(i), type_).sql + "::text")),
            (("v", type_.name),),
        )
        return f's."{measure.name("v")}"'

    def _sum(self, i: int, call: AggregateCall, type_: SqlType) -> str:
        if type_.base in INTEGERS:
            carried, scale = Carried("long", f"({self.column(i)})::int8"), 0
        elif type_.base == NUMERIC:
            known = scale_of(call.argument or "", self.aggregate.source)
            if known is None and (call.function == "avg" or not self._only_compared(i)):
                return self._recompute(i)
            if known is not None and known > UNKNOWN_SCALE:
                return self._recompute(i)
            scale = -1 if known is None else known
            carried = Carried(f"decimal:{UNKNOWN_SCALE if known is None else known}", f"({self.column(i)})::text")
        else:
            return self._recompute(i)
        measure = self._measure(i, "sum", (carried,), (("n", "bigint"), ("s", "numeric")))
        count, total = f's."{measure.name("n")}"', f's."{measure.name("s")}"'
        if call.function == "avg":
            return f"(CASE WHEN {count} > 0 THEN {total} / {count}::numeric END)"
        if type_.base in (INT2, INT4):
            total += "::bigint"
        elif scale < 0:
            total = f"pg_catalog.trim_scale({total})"
        return f"(CASE WHEN {count} > 0 THEN {total} END)"

    def _only_compared(self, i: int) -> bool:
        """Whether a sum of unknown scale stands only where its scale cannot show.

        Alone in a column, or compared in HAVING.
        """
        if self.aggregate.layers:
            return False
        place = CallPlace(i)
        if any(place in o.parts and len(o.parts) > 1 for o in self.aggregate.outputs):
            return False
        having = self.aggregate.having or ()
        text = " ".join(p for p in having if isinstance(p, str))
        return place not in having or not re.search(r"[/%^]|\b(?!AND\b|OR\b|NOT\b)\w+\s*\(", text)

    def _recompute(self, i: int) -> str:
        measure = self._measure(i, "recompute", (), (("v", self.result_types[i].name),), share=False)
        return f's."{measure.name("v")}"'

    def _measure(
        self, i: int, kind: str, columns: tuple[Carried, ...], state: tuple[tuple[str, str], ...], *, share: bool = True
    ) -> Measure:
        call = self.aggregate.calls[i]
        key = (kind, argument(call))
        if share and key in self.shared:
            return self.shared[key]
        measure = Measure(len(self.measures), kind, columns, state, call)
        self.measures.append(measure)
        if share:
            self.shared[key] = measure
        return measure
