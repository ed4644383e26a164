"""The supported window functions, their types and frames. Pure.

GROUPS counts peers: it is RANGE over their dense_rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import alternatives, coerce
from pgtrickle.pipeline.expressions.nodes import Constant, Node, Reference
from pgtrickle.pipeline.expressions.resolve import decided
from pgtrickle.pipeline.expressions.syntax import identifier, integer
from pgtrickle.pipeline.expressions.types import INT4, INT8, INTEGERS, PgType
from pgtrickle.pipeline.relational import aggregate_syntax, aggregates
from pgtrickle.pipeline.relational.algebra import AggregateCall, Frame, Relation, SortKey, Window, WindowCall
from pgtrickle.pipeline.relational.ordering import sort_keys
from pgtrickle.pipeline.relational.scalars import Scalars

RANKS = {"row_number": INT8, "rank": INT8, "dense_rank": INT8, "ntile": INT4}
RANKS |= {"percent_rank": PgType("float8"), "cume_dist": PgType("float8")}
SHIFTS = ("lag", "lead")
CHOICES = ("first_value", "last_value", "nth_value")
_AGGREGATES = ("count", "sum", "avg", "min", "max", "bool_and", "bool_or", "string_agg")
_EXCLUDED = ("CURRENT ROW", "GROUP", "TIES")


def windows_in(trees: Sequence[exp.Expr]) -> Iterator[exp.Window]:
    for tree in trees:
        if isinstance(tree, exp.Window):
            yield tree
        elif not isinstance(tree, exp.Query):
            yield from windows_in(list(tree.iter_expressions()))


class WindowFunctions:
    """Computes window functions over the rows of `scalars`; `named` are the windows of the WINDOW clause."""

    def __init__(self, scalars: Scalars, named: Mapping[str, exp.Window]) -> None:
        self.scalars = scalars
        self.named = named
        self._ranks: list[tuple[Reference, WindowCall]] = []
        self._calls: list[tuple[Reference, WindowCall]] = []

    def compute(self, trees: Sequence[exp.Window]) -> None:
        """Adds their columns to the rows, and their values to the computed ones."""
        for tree in trees:
            if tree not in self.scalars.known:
                self.scalars.known[tree] = self._value(tree)
        relation: Relation = self.scalars.relation
        for calls in (self._ranks, self._calls):
            if calls:
                relation = Window(relation, tuple(calls))
        self.scalars.relation = relation

    def _value(self, tree: exp.Window) -> Node:
        node = self.scalars.node
        partition, order_trees, spec = self._parts(tree)
        keys = tuple(node(t) for t in partition)
        order = sort_keys(order_trees, node)
        frame = _frame(spec, order)
        exclude = _exclude(spec)
        function = tree.this
        if isinstance(function, exp.IgnoreNulls | exp.RespectNulls):
            raise SparkUnsupportedError("IGNORE NULLS")
        name = _name(function)
        if name in RANKS or name in SHIFTS or name in CHOICES:
            call = self._function(name, function)
            is_framed = name in CHOICES
            return self._column(
                WindowCall(call, keys, order, frame if is_framed else None, exclude if is_framed else "")
            )
        written = aggregate_syntax.read(function)
        if written.name not in _AGGREGATES or written.is_distinct:
            raise SparkUnsupportedError(f"{written.name} OVER")
        if written.name == "string_agg" and not order:
            raise SparkUnsupportedError("string_agg OVER without ORDER BY")
        written = replace(written, is_window=True)
        arguments = [self.scalars.node(a) for a in written.arguments]
        where = None if written.where is None else self.scalars.condition(written.where)
        over = WindowCall(AggregateCall("", (), INT8), keys, order, frame, exclude)
        return aggregates.value(written, arguments, where, (), lambda call: self._column(replace(over, call=call)))

    def _column(self, over: WindowCall) -> Reference:
        names = self.scalars.context.names
        if over.exclude:
            marks = names.column(INT8), names.column(INT8)
            for mark, name in zip(marks, ("row_number", "dense_rank"), strict=True):
                of = WindowCall(AggregateCall(name, (), INT8), over.partition, over.order)
                self._ranks.append((mark, of))
            over = replace(over, marks=marks)
        if over.frame is not None and over.frame.unit == "GROUPS":
            rank = names.column(INT8)
            self._ranks.append(
                (rank, replace(over, call=AggregateCall("dense_rank", (), INT8), frame=None, exclude="", marks=()))
            )
            frame = Frame("RANGE", over.frame.start, over.frame.end)
            over = replace(over, order=(SortKey(rank, False, False),), frame=frame)
        column = names.column(over.call.type, native=_is_native(over.call))
        self._calls.append((column, over))
        return column

    def _parts(self, tree: exp.Window) -> tuple[list[exp.Expr], list[exp.Expr], exp.WindowSpec | None]:
        partition = list(tree.args.get("partition_by") or ())
        order = list(tree.args["order"].expressions) if tree.args.get("order") else []
        spec = tree.args.get("spec")
        if tree.args.get("alias") is not None:
            base = self.named.get(identifier(tree.args["alias"]))
            if base is None:
                raise SparkUnsupportedError("a window", f"{tree.args['alias']} is not defined")
            of_base = self._parts(base)
            return of_base[0], of_base[1] or order, spec or of_base[2]
        if tree.args.get("first") is not None:
            raise SparkUnsupportedError("KEEP")
        return partition, order, spec

    def _function(self, name: str, tree: exp.Expr) -> AggregateCall:
        arguments = tree.expressions if isinstance(tree, exp.Anonymous) else _arguments(tree)
        values = [self.scalars.open(t) for t in arguments]
        if name in RANKS:
            return AggregateCall(name, tuple(coerce(v, INT4) for v in values), RANKS[name])
        value = decided(values[0])
        if name in CHOICES:
            count = values[1:] and _constant(values[1], f"{name} with a variable place")
            extra = (Constant(count, INT4),) if values[1:] else ()
            return AggregateCall(name, (value, *extra), value.type)
        offset = _constant(values[1], f"{name} with a variable offset") if len(values) > 1 else 1
        if len(values) < 3:
            return AggregateCall(name, (value, Constant(offset, INT4)), value.type)
        value, default = alternatives([value, values[2]], name)
        return AggregateCall(name, (value, Constant(offset, INT4), default), value.type)


def _is_native(call: AggregateCall) -> bool:
    """Functions that return a value of a row keep its form; a lag with a default is computed."""
    if call.name in CHOICES or (call.name in SHIFTS and len(call.arguments) == 2):
        value = call.arguments[0]
        return not isinstance(value, Reference) or value.native
    return True


def _arguments(tree: exp.Expr) -> list[exp.Expr]:
    arguments = [tree.args.get(name) for name in ("this", "offset", "default")]
    return [t for t in arguments if t is not None]


def _constant(node: Node, what: str) -> int:
    if not isinstance(node, Constant) or not isinstance(node.value, int):
        raise SparkUnsupportedError(what)
    return node.value


def _name(tree: exp.Expr) -> str:
    if isinstance(tree, exp.Anonymous):
        return str(tree.this).lower()
    return tree.sql_name().lower() if isinstance(tree, exp.Func) else tree.key


def _frame(spec: exp.WindowSpec | None, order: Sequence[SortKey]) -> Frame | None:
    if spec is None:
        return None
    unit = str(spec.args.get("kind") or "RANGE").upper()
    start = _bound(spec.args.get("start"), spec.args.get("start_side"))
    end = _bound(spec.args.get("end"), spec.args.get("end_side"), is_end=True)
    if unit == "RANGE" and (start or end) and (len(order) != 1 or order[0].node.type.name not in INTEGERS):
        raise SparkUnsupportedError("RANGE with an offset", "its order is not one integer")
    if unit == "GROUPS" and not order:
        raise SparkUnsupportedError("GROUPS without ORDER BY")
    if unit == "RANGE" and not order:
        return None  # all rows are peers
    return Frame(unit, start, end)


def _exclude(spec: exp.WindowSpec | None) -> str:
    word = str(spec.args.get("exclude") or "").upper() if spec is not None else ""
    if word and word != "NO OTHERS" and word not in _EXCLUDED:
        raise SparkUnsupportedError(f"EXCLUDE {word}")
    return word if word in _EXCLUDED else ""


def _bound(value: object, side: object, *, is_end: bool = False) -> int | None:
    text = str(value).upper() if isinstance(value, str) else ""
    if (value is None and is_end) or text == "CURRENT ROW":
        return 0
    sign = -1 if str(side).upper() == "PRECEDING" else 1
    if text == "UNBOUNDED":
        if (sign > 0) != is_end:
            raise SparkUnsupportedError("a window's frame", f"{value} {side}")
        return None
    number = integer(value) if isinstance(value, exp.Expr) else None
    if number is None:
        raise SparkUnsupportedError("a window's frame", "its offset is not a constant integer")
    return sign * number
