"""From relational algebra to a DataFrame, through the public API of Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from importlib import import_module
from typing import Any

from pgtrickle.errors import InexactValueError
from pgtrickle.pipeline.expressions import json
from pgtrickle.pipeline.expressions.failures import refused
from pgtrickle.pipeline.expressions.nodes import Node, Reference
from pgtrickle.pipeline.expressions.translate import column, join_keys, key, native
from pgtrickle.pipeline.expressions.types import FLOATS, INT8, Column, Functions, spark_type
from pgtrickle.pipeline.relational.aggregate_columns import aggregate
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AggregateCall,
    AtMostOne,
    Distinct,
    Filter,
    Generate,
    Inline,
    Join,
    OneRow,
    Output,
    Project,
    Recursive,
    Relation,
    Scan,
    SetOperation,
    Top,
    UnionAll,
    Window,
    Working,
    columns,
)
from pgtrickle.pipeline.relational.delta import WEIGHT
from pgtrickle.pipeline.relational.sort_columns import ordering
from pgtrickle.pipeline.relational.window_columns import over

Frame = Any  # pyspark.sql.DataFrame, classic or Connect
MOST_STEPS = 1000  # of a recursive query
_HOW = {"semi": "left_semi", "anti": "left_anti"}


class Builder:
    """A relation that is used several times is built once; Spark plans each use."""

    def __init__(
        self, session: Any, inputs: Callable[[str, str, str], Frame], working: Mapping[int, Frame] | None = None
    ) -> None:
        from pyspark.sql import functions

        _allow_deep_messages()
        self.f = functions
        self.session = session
        self.inputs = inputs
        self.working = working or {}
        self._built: dict[int, tuple[Relation, Frame]] = {}

    def result(self, relation: Project, names: Sequence[str]) -> Frame:
        """With the user's column names, and numerics in encoded form."""
        frame = self.frame(relation.child)
        shown = [column(o.node).alias(name) for o, name in zip(relation.outputs, names, strict=True)]
        return frame.select(*shown)

    def net(self, relation: Project, names: Sequence[str], weight: Reference) -> Frame:
        """The netted delta: each distinct row with the sum of its weights, without sums of 0."""
        f = self.f
        shown = [column(o.node).alias(f"c{i}") for i, o in enumerate(relation.outputs)]
        rows = self.frame(relation.child).select(*shown, f.col(weight.name).alias(WEIGHT))
        # Spark groups 0 and -0 together, but they are different rows.
        grouped = [_exact(f, o.node, f"c{i}").alias(f"k{i}") for i, o in enumerate(relation.outputs)]
        values = [f.first(f"c{i}").alias(f"c{i}") for i in range(len(names))]
        summed = rows.groupBy(*grouped).agg(*values, f.sum(WEIGHT).alias(WEIGHT)).where(f.col(WEIGHT) != 0)
        return summed.select(*(f.col(f"c{i}").alias(name) for i, name in enumerate(names)), WEIGHT)

    def frame(self, relation: Relation) -> Frame:
        if id(relation) not in self._built:
            self._built[id(relation)] = (
                relation,
                self._frame(relation),
            )  # a reference to the relation keeps its id() unique
        return self._built[id(relation)][1]

    def _frame(self, relation: Relation) -> Frame:
        match relation:
            case OneRow():
                return self.session.range(1).select(self.f.lit(1).alias("one_row"))
            case Scan():
                renamed = [self.f.col(_quoted(name)).alias(c.name) for name, c in relation.columns]
                return self.inputs(relation.schema, relation.name, relation.state).select(*renamed)
            case Inline():
                return self._inline(relation)
            case Generate():
                return self._generated(relation)
            case Project():
                return self._projected(self.frame(relation.child), relation.outputs)
            case Filter():
                return self.frame(relation.child).where(column(relation.condition))
            case Join():
                return self._join(relation)
            case Aggregate():
                return self._grouped(self.frame(relation.child), relation.keys, relation.calls)
            case Window():
                made = [c for name, call in relation.calls for c in over(self.f, name, call)]
                return self.frame(relation.child).select("*", *made)
            case Distinct():
                shown = columns(relation)
                if all(_is_own_key(c) for c in shown):
                    return self.frame(relation.child).select(*_names(shown)).distinct()
                return self._grouped(self.frame(relation.child), [Output(c, c) for c in shown], ())
            case Top():
                return self._top(relation)
            case AtMostOne():
                return self._at_most_one(relation)
            case Working():
                return self.working[id(relation)]
            case Recursive():
                return self._recursive(relation)
            case UnionAll():
                branches = [self._positioned(branch, relation.columns) for branch in relation.branches]
                return reduce(lambda a, b: a.union(b), branches)
            case SetOperation():
                return self._set_operation(relation)

    def _inline(self, relation: Inline) -> Frame:
        f = self.f
        rows = [
            f.struct(
                *(column(n).cast(spark_type(c.type)).alias(c.name) for c, n in zip(relation.columns, r, strict=True))
            )
            for r in relation.rows
        ]
        return self.session.range(1).select(f.explode(f.array(*rows)).alias("r")).select("r.*")

    def _generated(self, relation: Generate) -> Frame:
        f = self.f
        made = relation.column
        if relation.function == "unnest":  # all dimensions; an array's text may begin with its bounds
            text = f.regexp_replace(column(relation.arguments[0]), r"\A\[.*\]=|[{}]", "")
            members = f.when(text == "", f.array().cast("array<string>")).when(text.isNotNull(), f.split(text, ","))
            array = f.transform(members, lambda m: f.when(m != "NULL", m).cast(spark_type(made.type)))
        elif relation.function.startswith("jsonb_"):
            array = json.members(f, column(relation.arguments[0]))
            if relation.function.endswith("_text"):
                array = f.transform(array, lambda m: json.plain(f, m))
        elif relation.function == "members":
            array = f.array(*(column(a).cast(spark_type(made.type)) for a in relation.arguments))
        else:
            start, end, *steps = (column(a) for a in relation.arguments)
            step = steps[0] if steps else f.lit(1).cast(spark_type(made.type))
            none = f.array().cast(f"array<{spark_type(made.type)}>")
            has_values = ((step > 0) & (start <= end)) | ((step < 0) & (start >= end))
            array = f.when(step == 0, refused(f, "step size cannot equal zero")).when(
                has_values, f.sequence(start, end, step)
            )
            array = array.otherwise(none)
        frame = self.frame(relation.child)
        if relation.ordinal is None:
            return frame.select("*", (f.explode_outer if relation.keeps else f.explode)(array).alias(made.name))
        places = f.posexplode_outer if relation.keeps else f.posexplode
        numbered = frame.select("*", places(array).alias("place", made.name))
        shown = _names(columns(relation.child))
        place = (f.col("place") + 1).cast("bigint").alias(relation.ordinal.name)
        return numbered.select(*shown, made.name, place)

    def _projected(self, frame: Frame, outputs: Sequence[Output]) -> Frame:
        made = [c for o in outputs for c in self._output(o.column, o.node)]
        return frame.select(*made) if made else frame.select(self.f.lit(1).alias("no_columns"))

    def _output(self, target: Reference, node: Node) -> list[Column]:
        """The column, and that of its display scale if it has one."""
        if not target.native:
            return [column(node).alias(target.name)]
        value, scale = native(node)
        made = [value.cast(target.type.decimal).alias(target.name)]
        if target.scale_name is not None:
            shown = scale if scale is not None else self.f.lit(node.type.scale)
            made.append(shown.cast("int").alias(target.scale_name))
        return made

    def _join(self, join: Join) -> Frame:
        left, right = self.frame(join.left), self.frame(join.right)
        tests = [] if join.condition is None else [column(join.condition)]
        for a, b in join.same:
            one, other = join_keys(a, b)
            tests.append(one.eqNullSafe(other))
        if not tests and join.kind == "inner":
            return left.crossJoin(right)
        condition = reduce(lambda a, b: a & b, tests) if tests else self.f.lit(True)
        return left.join(right, condition, _HOW.get(join.kind, join.kind))

    def _grouped(self, frame: Frame, keys: Sequence[Output], calls: Sequence[tuple[Reference, AggregateCall]]) -> Frame:
        f = self.f
        grouped, shown = [], []
        for output in keys:
            target, node = output.column, output.node
            if _is_own_key(target):
                (made,) = self._output(target, node)
                grouped.append(made if target.type.name not in ("float4", "float8") else key(node).alias(target.name))
            else:  # equal numerics may have different display scales: one of the group is returned
                grouped.append(key(node).alias(f"{target.name}_key"))
                shown += self._shortest(target, self._output(target, node))
        made = [*shown, *(c for name, call in calls for c in aggregate(f, name, call))]
        if not made:
            made = [f.count(f.lit(1)).alias("rows_of_group")]
        return frame.groupBy(*grouped).agg(*made)

    def _shortest(self, target: Reference, made: Sequence[Column]) -> list[Column]:
        """Of equal numerics the one with the smallest display scale: independent of the order of the rows."""
        value, scale = made[0], made[1] if len(made) > 1 else self.f.length(made[0])
        least = self.f.min(self.f.when(value.isNotNull(), self.f.struct(scale.alias("s"), value.alias("v"))))
        parts = [least.getField("v"), least.getField("s")]
        return [c.alias(n) for c, n in zip(parts, _names([target]), strict=False)]

    def _top(self, top: Top) -> Frame:
        f = self.f
        frame = self.frame(top.child)
        if not top.partition and not top.has_ties:
            if top.order:
                frame = frame.orderBy(*ordering(f, top.order))
            if top.offset:
                frame = frame.offset(top.offset)
            return frame if top.count is None else frame.limit(top.count)
        from pyspark.sql import Window as Windows

        window = Windows.partitionBy(*(key(n) for n in top.partition)).orderBy(*(ordering(f, top.order) or [f.lit(0)]))
        numbered = frame.select(
            "*", f.row_number().over(window).alias("place"), f.rank().over(window).alias("place_of_peers")
        )
        kept = f.col("place") > top.offset
        if top.count is not None:
            last = "place_of_peers" if top.has_ties else "place"
            kept &= f.col(last) <= top.offset + top.count
        return numbered.where(kept).drop("place", "place_of_peers")

    def _at_most_one(self, relation: AtMostOne) -> Frame:
        f = self.f
        others = [c for c in columns(relation) if c not in relation.partition]
        calls = [(c, AggregateCall("any_value", (c,), c.type)) for c in others]
        count = Reference("rows_of_subquery", INT8)
        keys = [Output(c, c) for c in relation.partition]
        frame = self._grouped(self.frame(relation.child), keys, [*calls, (count, AggregateCall("count", (), INT8))])
        message = "more than one row returned by a subquery used as an expression"
        many = f.col(count.name) > 1
        checked = [f.when(many, refused(f, message)).otherwise(f.col(n)).alias(n) for n in _names(others)]
        return frame.select(*_names(relation.partition), *checked)

    def _recursive(self, relation: Recursive) -> Frame:
        """Runs a job per step, since the rows of a step decide whether there is another."""
        first_rows = self._unique(relation, self._positioned(relation.first, relation.working.columns))
        first_rows = self._checkpoint(first_rows)
        steps = [first_rows]
        for _ in range(MOST_STEPS):
            if steps[-1].isEmpty():
                return self._renamed(_keeping(reduce(lambda a, b: a.union(b), steps), steps), relation)
            inner = Builder(self.session, self.inputs, {**self.working, id(relation.working): steps[-1]})
            new = self._unique(relation, inner._positioned(relation.step, relation.working.columns))
            if relation.is_distinct:
                known = self._copied(reduce(lambda a, b: a.union(b), steps), relation)
                tests = [key(c).eqNullSafe(key(_old(c))) for c in relation.working.columns]
                new = new.join(known, reduce(lambda a, b: a & b, tests), "left_anti")
            steps.append(self._checkpoint(new))
        raise InexactValueError(f"a recursive query takes more than {MOST_STEPS} steps")

    def _checkpoint(self, frame: Frame) -> Frame:
        """Spark Connect assigns the result to the active session of this thread, or to the first one of the process.
        Both may be missing or another one: the first one is closed when Spark was lost."""
        active = getattr(type(self.session), "_active_session", None)
        if active is not None:
            active.session = self.session
        return frame.localCheckpoint()

    def _unique(self, relation: Recursive, frame: Frame) -> Frame:
        if not relation.is_distinct:
            return frame
        return self._grouped(frame, [Output(c, c) for c in relation.working.columns], ()).select(
            *_names(relation.working.columns)
        )

    def _copied(self, frame: Frame, relation: Recursive) -> Frame:
        return frame.select(*(self.f.col(c.name).alias(_old(c).name) for c in relation.working.columns))

    def _renamed(self, frame: Frame, relation: Recursive) -> Frame:
        pairs = zip(relation.working.columns, relation.columns, strict=True)
        return frame.select(*(self.f.col(a.name).alias(b.name) for a, b in pairs))

    def _positioned(self, branch: Relation, targets: Sequence[Reference]) -> Frame:
        outputs = [Output(t, c) for t, c in zip(targets, columns(branch), strict=True)]
        return self._projected(self.frame(branch), outputs)

    def _set_operation(self, relation: SetOperation) -> Frame:
        """Counts the rows of both sides by key; the output rows come from the left side."""
        f = self.f
        sides = [
            self._positioned(side, relation.columns).select("*", f.lit(number).alias("side"))
            for side, number in ((relation.left, 1), (relation.right, 0))
        ]
        both = sides[0].union(sides[1])
        grouped, shown = [], []
        for c in relation.columns:
            if _is_own_key(c):
                grouped.append(key(c).alias(c.name))
            else:
                grouped.append(key(c).alias(f"{c.name}_key"))
                of_left = [f.when(f.col("side") == 1, f.col(n)) for n in _names([c])]
                shown += [f.first(v, True).alias(n) for v, n in zip(of_left, _names([c]), strict=True)]
        side = f.col("side").cast("bigint")
        counted = both.groupBy(*grouped).agg(*shown, f.sum(side).alias("lefts"), f.sum(1 - side).alias("rights"))
        lefts, rights = f.col("lefts"), f.col("rights")
        names = _names(relation.columns)
        if not relation.keeps_duplicates:
            other = rights > 0 if relation.word == "INTERSECT" else rights == 0
            return counted.where((lefts > 0) & other).select(*names)
        times = f.least(lefts, rights) if relation.word == "INTERSECT" else lefts - rights
        copies = f.array_repeat(f.lit(1), f.greatest(times, f.lit(0)).cast("int"))
        return counted.select(*names, f.explode(copies).alias("copy")).drop("copy")


def _allow_deep_messages() -> None:
    """A plan of some fifty operators has more than 100 nested messages, protobuf's default limit in the client; Spark's
    server accepts 1024."""
    if import_module("google.protobuf.internal.api_implementation").Type() == "upb":
        import_module("google._upb._message").SetAllowOversizeProtos(True)  # raises the depth limit, too


def _exact(f: Functions, node: Node, name: str) -> Column:
    return f.col(name).cast("string") if node.type.name in FLOATS else f.col(name)


def _is_own_key(reference: Reference) -> bool:
    """Whether equal values have equal forms."""
    return reference.type.name != "numeric" or reference.type.fixed


def _names(references: Sequence[Reference]) -> list[str]:
    """The DataFrame's columns of these."""
    return [n for r in references for n in (r.name, r.scale_name) if n is not None]


def _old(reference: Reference) -> Reference:
    return replace(reference, name=f"{reference.name}_old")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _keeping(frame: Frame, steps: Sequence[Frame]) -> Frame:
    """Spark Connect drops the rows of a checkpoint when its DataFrame is garbage-collected. The plan of a DataFrame
    lives as long as the DataFrames derived from it, so it references the steps."""
    if (plan := getattr(frame, "_plan", None)) is not None:
        plan.kept = tuple(steps)
    return frame
