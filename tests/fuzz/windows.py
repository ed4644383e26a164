"""Random window functions: those that depend on the order of rows have a total one."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.fuzz.expressions import Expressions, Scope, column
from tests.fuzz.tree import ALL, BOOL, INT, NUM, ORDER, TEXT, TYPES, Expr


@dataclass
class Windows:
    random: Random
    expressions: Expressions
    used: set[str]

    def order(self, scope: Scope) -> Expr:
        """Of all functions in one SELECT that depend on the order of rows."""
        own = [column(c) for c in scope.own if c.type in TYPES]
        first = self.random.sample(own, min(1, len(own)))
        direction = self.random.choice(("", " DESC", " DESC NULLS LAST", " NULLS FIRST"))
        listed = "".join(f"{{}}{direction}, " for _ in first)
        return Expr(f"{{}} ORDER BY {listed}{ALL}", "", (self._partition(scope), *first))

    def _partition(self, scope: Scope) -> Expr:
        own = [c for c in scope.own if c.type in TYPES]
        count = self.random.choice((0, 1, 1, 1, 2))
        if not own or not count:
            self.used.add("window without PARTITION BY")
            return Expr("", "")
        args = tuple(column(c) for c in self.random.sample(own, min(count, len(own))))
        return Expr("PARTITION BY " + ", ".join(["{}"] * len(args)), "", args)

    def any(self, type_: str, scope: Scope, named: str | None) -> Expr:
        random = self.random
        own = Scope(tuple(c for c in scope.own if c.type in TYPES))
        value = self.expressions.leaf(type_, own)
        functions: list[tuple[str, tuple[Expr, ...], bool | None]]
        if type_ == INT and random.random() < 0.5:
            functions = [
                ("rank()", (), False),
                ("dense_rank()", (), False),
                ("row_number()", (), True),
                ("ntile(3)", (), True),
                ("count(*)", (), None),
                ("count({})", (self.expressions.leaf(TEXT, own),), None),
                ("sum({})", (value,), None),
            ]
        else:
            functions = [
                ("lag({})", (value,), True),
                (f"lead({{}}, {random.randint(1, 3)})", (value,), True),
                ("lag({}, 1, {})", (value, self.expressions.leaf(type_, own)), True),
                ("first_value({})", (value,), True),
                ("last_value({})", (value,), True),
                ("nth_value({}, 2)", (value,), True),
            ]
            if type_ != BOOL:
                functions += [("min({})", (value,), None), ("max({})", (value,), None)]
            else:
                functions += [("bool_or({})", (value,), None)]
            if type_ == NUM:
                functions += [("sum({})", (value,), None), ("avg({})", (value,), None)]
            if type_ == TEXT:
                functions += [("string_agg({}, ',')", (value,), True)]
        function, args, total = random.choice(functions)
        type_cast = "::bigint" if type_ == INT and function.startswith("sum") else ""
        self.used.add(function.partition("(")[0] + " OVER")
        framed = function.startswith(
            ("count", "sum", "min", "max", "avg", "first", "last", "nth", "string_agg", "bool")
        )
        if function.startswith("count") and random.random() < 0.2:
            function += " FILTER (WHERE {})"
            args = (*args, self.expressions.condition(own, 0))
        if named is not None and random.random() < 0.5:
            return Expr(f"{function} OVER {named}{type_cast}", type_, args)
        over, over_args = self._over(own, total, framed)
        return Expr(f"{function} OVER ({over}){type_cast}", type_, (*args, *over_args))

    def _over(self, own: Scope, total: bool | None, framed: bool) -> tuple[str, tuple[Expr, ...]]:
        """`total`: the function needs a total order; None: only if its frame counts rows."""
        random = self.random
        partition = self._partition(own)
        ints = [c for c in own.own if c.type == INT]
        order_by = [column(c) for c in random.sample(own.own, min(len(own.own), random.randint(1, 2)))]
        direction = random.choice(("", " DESC", " DESC NULLS LAST", " NULLS FIRST"))
        frame = random.choice(("", "", "ROWS", "RANGE", "GROUPS")) if framed else ""
        exclude = (
            random.choice(("", "", "", " EXCLUDE CURRENT ROW", " EXCLUDE GROUP", " EXCLUDE TIES")) if frame else ""
        )
        if frame == "ROWS" or total:
            bounds = f" {frame} {self._bounds(offsets=frame != 'RANGE')}{exclude}" if frame else ""
            return f"{ORDER}{bounds}", ()
        if not order_by or (total is None and not frame and random.random() < 0.4):
            return "{}", (partition,)
        if frame == "RANGE" and ints and random.random() < 0.6:
            return f"{{}} ORDER BY {{}}{direction} RANGE {self._bounds(offsets=True)}{exclude}", (
                partition,
                column(random.choice(ints)),
            )
        listed = ", ".join(f"{{}}{direction}" for _ in order_by)
        bounds = f" {frame} {self._bounds(offsets=frame == 'GROUPS')}{exclude}" if frame else ""
        return f"{{}} ORDER BY {listed}{bounds}", (partition, *order_by)

    def _bounds(self, *, offsets: bool) -> str:
        starts = ["UNBOUNDED PRECEDING", "CURRENT ROW"] + (["1 PRECEDING", "2 PRECEDING"] if offsets else [])
        ends = ["UNBOUNDED FOLLOWING", "CURRENT ROW"] + (["1 FOLLOWING", "2 FOLLOWING"] if offsets else [])
        self.used.add("frame")
        return f"BETWEEN {self.random.choice(starts)} AND {self.random.choice(ends)}"
