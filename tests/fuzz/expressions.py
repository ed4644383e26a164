"""Random scalar expressions over a scope. None can raise: no division by zero, no overflow, no cast that may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tests.fuzz.schema import literal
from tests.fuzz.tree import BOOL, DATE, INT, NUM, TEXT, TYPES, Column, Expr, Query

CONVERSIONS = {
    (INT, NUM): "{}::numeric",
    (INT, TEXT): "{}::text",
    (INT, DATE): "(DATE '2024-01-01' + ({} % 5)::int)",
    (INT, BOOL): "({} > 1)",
    (NUM, INT): "({} > 0.75)::int",
    (NUM, BOOL): "({} > 1)",
    (TEXT, INT): "length({})",
    (TEXT, BOOL): "({} >= 'b')",
    (DATE, TEXT): "to_char({}, 'MM-DD')",
    (DATE, INT): "EXTRACT(month FROM {})::int",
    (BOOL, INT): "{}::int",
    (BOOL, TEXT): "{}::text",
}
MOSTLY_TRUE = ("<>", "<>", "<", ">", "<=", ">=", "=")
COMPARISONS = ("=", "=", "=", "<>", "<", "<=", ">", ">=")


@dataclass(frozen=True, slots=True)
class Scope:
    """`own`: columns of this SELECT. `outer`: of those around it. `atoms`: what a grouped SELECT may use instead."""

    own: tuple[Column, ...]
    outer: tuple[Column, ...] = ()
    atoms: tuple[Expr, ...] = ()
    ctes: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    def visible(self) -> tuple[Column, ...]:
        """To a subquery: names without an alias could mean something else there."""
        return tuple(c for c in self.own + self.outer if "." in c.sql)


class Subqueries(Protocol):
    """What expressions need of the generator of queries."""

    def rows_of(self, types: Sequence[str], scope: Scope, depth: int) -> Query: ...

    def one_value(self, type_: str, scope: Scope, depth: int) -> Query: ...


Maker = Callable[[Scope, int], Expr]


def column(found: Column) -> Expr:
    return Expr(found.sql, found.type, reads=True)


@dataclass
class Expressions:
    random: Random
    subqueries: Subqueries
    used: set[str] = field(default_factory=set)

    def leaf(self, type_: str, scope: Scope, *, outer: float = 0.15) -> Expr:
        random = self.random
        atoms = [a for a in scope.atoms if a.type == type_]
        if atoms and random.random() < 0.8:
            return random.choice(atoms)
        around = [c for c in scope.outer if c.type == type_]
        if around and random.random() < outer:
            self.used.add("correlated")
            return column(random.choice(around))
        own = [c for c in scope.own if c.type == type_] if not scope.atoms else []
        if own and random.random() < 0.9:
            return column(random.choice(own))
        if not own and random.random() < 0.8:
            return self._converted(type_, scope)
        return Expr(literal(random, type_), type_)

    def _varying(self, type_: str, scope: Scope, otherwise: Expr) -> Expr:
        own = [c for c in scope.own if c.type == type_]
        return column(self.random.choice(own)) if own and not scope.atoms else otherwise

    def _converted(self, type_: str, scope: Scope) -> Expr:
        """A column of another type: constants alone would hide what happens to the rows."""
        others: list[Expr] = [*scope.atoms] or [column(c) for c in scope.own]
        usable = [e for e in others if (e.type, type_) in CONVERSIONS]
        if not usable:
            return Expr(literal(self.random, type_), type_)
        chosen = self.random.choice(usable)
        return Expr(CONVERSIONS[chosen.type, type_], type_, (chosen,))

    def any(self, type_: str, scope: Scope, depth: int, *, queries: int = 0) -> Expr:
        """`depth` bounds the expression, `queries` the subqueries inside it."""
        random = self.random
        if queries > 0 and random.random() < 0.12:
            self.used.add("scalar subquery")
            return Expr("({})", type_, (self.subqueries.one_value(type_, scope, queries - 1),))
        if depth <= 0 or random.random() < 0.45:
            return self.leaf(type_, scope)

        def again(wanted: str) -> Expr:
            return self.any(wanted, scope, depth - 1, queries=queries)

        if type_ != BOOL and random.random() < 0.25:
            return self._conditional(type_, scope, depth, queries)
        match type_:
            case "int":
                template, args = random.choice(
                    (
                        ("({} + {})", (INT, INT)),
                        ("({} - {})", (INT, INT)),
                        ("({} * 2)", (INT,)),
                        ("({} % 3)", (INT,)),
                        ("(- {})", (INT,)),
                        ("abs({})", (INT,)),
                        ("length({})", (TEXT,)),
                        ("EXTRACT(day FROM {})::int", (DATE,)),
                        ("{}::int", (BOOL,)),
                    )
                )
            case "numeric":
                template, args = random.choice(
                    (
                        ("({} + {})", (NUM, NUM)),
                        ("({} - {})", (NUM, INT)),
                        ("({} * {})", (NUM, INT)),
                        ("({} / 4)", (NUM,)),
                        ("round({}, 1)", (NUM,)),
                        ("({} * 1.10)", (NUM,)),
                        ("{}::numeric", (INT,)),
                    )
                )
            case "text":
                template, args = random.choice(
                    (
                        ("({} || {})", (TEXT, TEXT)),
                        ("upper({})", (TEXT,)),
                        ("left({}, 1)", (TEXT,)),
                        ("{}::text", (INT,)),
                        ("to_char({}, 'YYYY-MM')", (DATE,)),
                        ("concat({}, '-', {})", (TEXT, TEXT)),
                    )
                )
            case "date":
                template, args = random.choice((("({} + 1)", (DATE,)), ("({} - 30)", (DATE,))))
            case _:
                return self.condition(scope, depth, queries=queries)
        return Expr(template, type_, tuple(again(t) for t in args))

    def _conditional(self, type_: str, scope: Scope, depth: int, queries: int) -> Expr:

        def again(wanted: str) -> Expr:
            return self.any(wanted, scope, depth - 1, queries=queries)

        way = self.random.random()
        if way < 0.4:
            return Expr("coalesce({}, {})", type_, (again(type_), again(type_)))
        if way < 0.8:
            condition = self.condition(scope, depth - 1, queries=queries)
            return Expr("CASE WHEN {} THEN {} ELSE {} END", type_, (condition, again(type_), again(type_)))
        if way < 0.9:
            return Expr("nullif({}, {})", type_, (again(type_), again(type_)))
        return Expr("greatest({}, {})", type_, (again(type_), again(type_)))

    # -- conditions

    def condition(self, scope: Scope, depth: int, *, queries: int = 0) -> Expr:
        random = self.random
        if queries > 0 and random.random() < 0.35:
            return self._about_rows(scope, queries - 1)
        if depth > 0 and random.random() < 0.35:
            template = random.choice(("({} AND {})", "({} OR {})", "({} OR {})", "(NOT {})"))
            args = [self.condition(scope, depth - 1, queries=queries) for _ in range(template.count("{}"))]
            if "OR" in template and queries:
                self.used.add("OR")
            return Expr(template, BOOL, tuple(args))
        type_ = random.choice((INT, INT, INT, NUM, TEXT, DATE, BOOL))
        if type_ == BOOL:
            operand = self.leaf(BOOL, scope)
            return Expr(random.choice(("{}", "({} IS TRUE)", "({} IS NOT FALSE)")), BOOL, (operand,))
        left = self.any(type_, scope, depth - 1, queries=queries)
        way = random.random()
        if way < 0.3:
            # Few NULLs and constants: conditions that never hold make empty tables, and those show nothing.
            left = self._varying(type_, scope, left)
            return Expr(f"({{}} {random.choice(MOSTLY_TRUE)} {literal(random, type_, null=False)})", BOOL, (left,))
        if way < 0.6:
            right = self.any(type_, scope, depth - 1, queries=queries)
            return Expr(f"({{}} {random.choice(COMPARISONS)} {{}})", BOOL, (left, right))
        if way < 0.75:
            return Expr(random.choice(("({} IS NULL)", "({} IS NOT NULL)", "({} IS NOT NULL)")), BOOL, (left,))
        if way < 0.85:
            right = self.leaf(type_, scope)
            return Expr(f"({{}} IS {random.choice(('', 'NOT '))}DISTINCT FROM {{}})", BOOL, (left, right))
        if way < 0.95 or type_ != TEXT:
            values = ", ".join(literal(random, type_, null=random.random() < 0.2) for _ in range(3))
            return Expr(f"({{}} {random.choice(('IN', 'IN', 'NOT IN'))} ({values}))", BOOL, (left,))
        return Expr("({} LIKE '%b%')", BOOL, (left,))

    def _about_rows(self, scope: Scope, depth: int) -> Expr:
        """EXISTS, IN, ANY, ALL and their negations."""
        random = self.random
        rows = self.subqueries.rows_of
        way = random.choice(("exists", "exists", "in", "in", "not in", "columns", "any", "all", "scalar"))
        type_ = random.choice((INT, INT, TEXT, NUM))
        match way:
            case "exists":
                word = random.choice(("EXISTS", "NOT EXISTS"))
                self.used.add(word)
                return Expr(f"({word} ({{}}))", BOOL, (rows([INT], scope, depth),))
            case "in" | "not in":
                self.used.add(way.upper())
                return Expr(
                    f"({{}} {way.upper()} ({{}}))", BOOL, (self.leaf(type_, scope), rows([type_], scope, depth))
                )
            case "columns":
                types = (type_, random.choice(TYPES))
                self.used.add("multi-column IN")
                sides = tuple(self.leaf(t, scope) for t in types)
                word = random.choice(("IN", "NOT IN"))
                return Expr(f"(({{}}, {{}}) {word} ({{}}))", BOOL, (*sides, rows(types, scope, depth)))
            case "any" | "all":
                self.used.add(way.upper())
                operator = random.choice(COMPARISONS)
                left = self.leaf(type_, scope)
                return Expr(f"({{}} {operator} {way.upper()} ({{}}))", BOOL, (left, rows([type_], scope, depth)))
        self.used.add("scalar subquery")
        value = self.subqueries.one_value(type_, scope, depth)
        return Expr(f"({{}} {random.choice(COMPARISONS)} ({{}}))", BOOL, (self.leaf(type_, scope), value))
