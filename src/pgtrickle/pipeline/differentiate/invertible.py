"""Invertible aggregates: groups whose old state is the new state minus the delta (counts and exact sums).

The state of a group is its key, its number of rows and, for each argument of an aggregate, the number of values and
their sum:

    count(x)' = count(x) + d count(x)      sum(x)' = sum(x) + d sum(x)      avg(x) = sum(x) / count(x)

    in:  SELECT g, avg(x) FROM t GROUP BY g
    out: SELECT g AS __pgt_k0, count(*) AS n, count(x) AS c0, sum(x) AS s0 FROM t GROUP BY g

The row of a group is rendered from its state, old or new. A group key must be a column whose equal values have equal
texts, because the two states may have the key from different rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.model.catalog import Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.codec import INTEGERS, NUMERIC, numeric_scale
from pgtrickle.pipeline.differentiate.key_filter import column_of
from pgtrickle.pipeline.plan.measures import filtered_argument
from pgtrickle.pipeline.plan.names import outer_aliases
from pgtrickle.pipeline.plan.nodes import (
    AggregateCall,
    Block,
    Grouped,
    OutputColumn,
    Piece,
    Scan,
    Select,
    fill,
    from_items,
    subqueries,
)
from pgtrickle.pipeline.plan.nodes import block_texts as texts_of
from pgtrickle.pipeline.plan.scales import scales_of
from pgtrickle.pipeline.plan.shapes import simplify

GROUP = '"__pgt_g"'
# bool, "char", text, varchar, date, timestamp, timestamptz, uuid
_WRITTEN_ALIKE = INTEGERS | {16, 18, 25, 1043, 1082, 1114, 1184, 2950}


@dataclass(frozen=True, slots=True)
class InvertibleGroups:
    """A block of invertible groups. `arguments`: of its aggregates. `summed`: those of which the sum is needed, too."""

    block: Block
    grouped: Grouped
    arguments: tuple[str, ...]
    summed: frozenset[int]

    @property
    def keys(self) -> tuple[str, ...]:
        return self.block.region or ()

    @property
    def rows(self) -> Select | Block:
        """The rows that are grouped: __pgt_k0, ... and __pgt_a0, ..."""
        columns = [OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(self.keys)]
        columns += [OutputColumn(f"__pgt_a{i}", (a,)) for i, a in enumerate(self.arguments)]
        return simplify(Block(tuple(columns), self.block.trees, self.block.where))

    @property
    def state_block(self) -> Block:
        """The state of the groups: __pgt_k0, ..., n, c0, s0, ..."""
        columns = [OutputColumn(f"__pgt_k{i}", (k,)) for i, k in enumerate(self.keys)]
        columns.append(OutputColumn("n", ("count(*)",)))
        for i, value in enumerate(self.arguments):
            columns.append(OutputColumn(f"c{i}", (f"count({value})",)))
            if i in self.summed:
                columns.append(OutputColumn(f"s{i}", (f"sum({value})",)))
        tail = f" GROUP BY {', '.join(self.keys)}"
        return Block(tuple(columns), self.block.trees, self.block.where, self.block.region, (tail,))

    @property
    def reads_tables_only(self) -> bool:
        """Whether its SQL in the new state names nothing but tables."""
        is_plain = all(isinstance(p.node, Scan) for p in from_items(self.block))
        return is_plain and not any(subqueries(text) for text in texts_of(self.block))

    def render_rows(self, state: str, source: str, weight: str = "") -> str:
        """The rows of the groups whose state is in `source`, in columns with the suffix `state`."""
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
        value = filtered_argument(call)
        if value is None:
            return f"{GROUP}.n{state}"
        i = self.arguments.index(value)
        if call.function == "count":
            return f"{GROUP}.c{i}{state}"
        total = f"{GROUP}.s{i}{state}"
        return total if call.function == "sum" else f"({total}::numeric / nullif({GROUP}.c{i}{state}, 0)::numeric)"


def invertible_groups(node: Block) -> InvertibleGroups | None:
    grouped = node.grouped
    if grouped is None or not node.region or node.distinct_on is not None or outer_aliases(node):
        return None
    if grouped.columns != tuple(c.text for c in node.columns):
        return None
    keys = [column_of(node, k) for k in node.region]
    if not all(key_column is not None and _is_written_alike(key_column[1]) for key_column in keys):
        return None
    arguments: list[str] = []
    summed = set()
    for call in grouped.calls:
        if call.distinct or call.function not in ("count", "sum", "avg"):
            return None
        value = filtered_argument(call)
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
