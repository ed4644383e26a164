"""Groups that need not be evaluated as they were: counts and exact sums as they are, less what the changes bring.

A group is its keys, its number of rows and, for each argument of an aggregate, how many values it has and their sum.
Its row is written from these, whether as it is or as it was. A key must be a column whose equal values are written
alike: either state may have it from another row.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import INTEGERS, NUMERIC, numeric_scale
from pgtrickle.pipeline.differentiate.key_filter import column_of
from pgtrickle.pipeline.plan.measures import argument
from pgtrickle.pipeline.plan.names import free
from pgtrickle.pipeline.plan.nodes import (
    AggregateCall,
    Block,
    Grouped,
    OutputColumn,
    Piece,
    Scan,
    Select,
    fill,
    parts,
    subs,
)
from pgtrickle.pipeline.plan.nodes import texts as texts_of
from pgtrickle.pipeline.plan.scales import scales_of
from pgtrickle.pipeline.plan.shapes import simplest

GROUP = '"__pgt_g"'
# bool, "char", text, varchar, date, timestamp, timestamptz, uuid
_WRITTEN_ALIKE = INTEGERS | {16, 18, 25, 1043, 1082, 1114, 1184, 2950}


@dataclass(frozen=True, slots=True)
class InvertibleGroups:
    """A block of such groups. `arguments` are those of its aggregates; of the `summed` ones the sum is needed, too."""

    block: Block
    grouped: Grouped
    arguments: tuple[str, ...]
    summed: frozenset[int]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.block.region or ()

    @property
    def rows(self) -> Select | Block:
        """What is grouped: __pgt_k0, ... and __pgt_a0, ..."""
        columns = [OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(self.keys)]
        columns += [OutputColumn(f"__pgt_a{i}", (a,)) for i, a in enumerate(self.arguments)]
        return simplest(Block(tuple(columns), self.block.trees, self.block.where))

    @property
    def numbers(self) -> Block:
        """The groups by their numbers: __pgt_k0, ..., n, c0, s0, ..."""
        columns = [OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(self.keys)]
        columns.append(OutputColumn("n", ("count(*)",)))
        for i, value in enumerate(self.arguments):
            columns.append(OutputColumn(f"c{i}", (f"count({value})",)))
            if i in self.summed:
                columns.append(OutputColumn(f"s{i}", (f"sum({value})",)))
        tail = f" GROUP BY {', '.join(self.keys)}"
        return Block(tuple(columns), self.block.trees, self.block.where, self.block.region, (tail,))

    @property
    def stands_alone(self) -> bool:
        """Whether its SQL over tables as they are names nothing but tables."""
        is_plain = all(isinstance(p.node, Scan) for p in parts(self.block))
        return is_plain and not any(subs(text) for text in texts_of(self.block))

    def shown(self, state: str, source: str, weight: str = "") -> str:
        """The rows of groups whose numbers have this suffix in `source`; none where there is one state only."""
        columns = [
            f"{self._text(parts, state)} AS {quote_ident(c.name)}"
            for c, parts in zip(self.block.columns, self.grouped.outputs, strict=True)
        ]
        where = f"{GROUP}.n{state} > 0"
        if self.grouped.having is not None:
            where += f" AND ({self._text(self.grouped.having, state)})"
        return f"SELECT {', '.join(columns)}{weight} FROM {source} AS {GROUP} WHERE {where}"

    def _text(self, pieces: tuple[Piece, ...], state: str) -> str:
        return fill(pieces, lambda i: f"{GROUP}.__pgt_k{i}", lambda i: self._value(self.grouped.calls[i], state))

    def _value(self, call: AggregateCall, state: str) -> str:
        value = argument(call)
        if value is None:
            return f"{GROUP}.n{state}"
        i = self.arguments.index(value)
        if call.function == "count":
            return f"{GROUP}.c{i}{state}"
        total = f"{GROUP}.s{i}{state}"
        return total if call.function == "sum" else f"({total}::numeric / nullif({GROUP}.c{i}{state}, 0)::numeric)"


def invertible_groups(node: Block) -> InvertibleGroups | None:
    grouped = node.grouped
    if grouped is None or not node.region or node.distinct_on is not None or free(node):
        return None
    if grouped.columns != tuple(c.text for c in node.columns):
        return None
    keys = [column_of(node, k) for k in node.region]
    if not all(found is not None and _is_written_alike(found[1]) for found in keys):
        return None
    arguments: list[str] = []
    summed = set()
    for call in grouped.calls:
        if call.distinct or call.function not in ("count", "sum", "avg"):
            return None
        value = argument(call)
        if value is None:
            continue
        if value not in arguments:
            arguments.append(value)
        if call.function != "count":
            scales = scales_of(call.argument or "", node.trees)
            if scales is None or len(scales) != 1:
                return None
            summed.add(arguments.index(value))
    return InvertibleGroups(node, grouped, tuple(arguments), frozenset(summed))


def _is_written_alike(column: Column) -> bool:
    if column.typid == NUMERIC:
        return numeric_scale(column.typmod) is not None
    return column.typid in _WRITTEN_ALIKE
