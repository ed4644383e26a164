"""Random plans of the first shapes with the meaning of their texts, random tables and random changes.

A plan prints as SQL too (`sql_of`), so that PostgreSQL can be asked about the same plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.pipeline.plan.measures import filtered_argument
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    AggregateCall,
    CallPlace,
    From,
    Input,
    Item,
    KeyPlace,
    Layer,
    Linear,
    Member,
    Output,
    Scan,
    Select,
    UnionAll,
)
from tests.property.interpreter import Bag, Environment, Row, linear_rows, place_text

COLUMNS = (("k", "int"), ("v", "int"), ("t", "text"), ("n", "numeric"), ("b", "bool"))
OIDS = {"int": (23, -1), "text": (25, -1), "numeric": (1700, ((8 << 16) | 2) + 4), "bool": (16, -1)}
VALUES: dict[str, tuple[Any, ...]] = {
    "k": (None, 1, 2, 3),
    "v": (None, -2, 0, 1, 2),
    "t": (None, "", "x", "y"),
    "n": (None, Decimal("0.00"), Decimal("1.50"), Decimal("-1.50"), Decimal("2.25")),
    "b": (None, True, False),
}
TABLES = ("ta", "tb", "tc")
DDL = "; ".join(f"CREATE TABLE {t} (k int, v int, t text, n numeric(8, 2), b bool)" for t in TABLES)
MAX_OCCURRENCES = 4

Tables = dict[int, Bag]  # by relid
Shape = Linear | Aggregate  # what is drawn here


def relation(number: int) -> Relation:
    columns = tuple(Column(i, name, type_, *OIDS[type_]) for i, (name, type_) in enumerate(COLUMNS, start=1))
    return Relation(number + 1, "public", TABLES[number], "r", columns)


@dataclass(frozen=True)
class Expression:
    sql: str
    type: str
    value: Callable[[Environment], Any]


@dataclass(frozen=True)
class Case:
    """A plan and the meaning of every text in it."""

    plan: Shape
    meaning: dict[str, Callable[[Environment], Any]]


def strict(operator: Callable[[Any, Any], Any], a: Expression, b: Expression) -> Callable[[Environment], Any]:
    def value(environment: Environment) -> Any:
        left, right = a.value(environment), b.value(environment)
        return None if left is None or right is None else operator(left, right)

    return value


def either(a: Any, b: Any) -> bool | None:
    return True if a is True or b is True else None if a is None or b is None else False


def both(a: Any, b: Any) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


class Generator:
    """Draws one plan. `random` may be hypothesis' own, which then shrinks."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.meaning: dict[str, Callable[[Environment], Any]] = {}
        self.occurrences = 0
        self.aliases = 0

    def case(self) -> Case:
        shape = self.random.choice(("bag", "bag", "aggregate", "aggregate"))
        plan: Shape = self.aggregate() if shape == "aggregate" else self.linear(self.types(), depth=2)
        return Case(plan, self.meaning)

    def types(self) -> list[str]:
        return [self.random.choice(("int", "text", "numeric", "bool")) for _ in range(self.random.randint(1, 3))]

    def known(self, expression: Expression) -> str:
        self.meaning[expression.sql] = expression.value
        return expression.sql

    # -- linear plans

    def linear(self, types: Sequence[str], depth: int) -> Select | UnionAll:
        if depth and self.random.random() < 0.3 and self.occurrences + 2 <= MAX_OCCURRENCES:
            return UnionAll(tuple(self.linear(types, depth - 1) for _ in range(self.random.randint(2, 3))))
        source, scope = self.source(depth)
        items = tuple(Item(f"c{i}", self.known(self.expression(t, scope))) for i, t in enumerate(types))
        return Select(items, source, self.condition(scope))

    def source(self, depth: int) -> tuple[From, list[Expression]]:
        members: list[Member] = []
        parts: list[str | int] = []
        scope: list[Expression] = []
        for position in range(self.random.choice((1, 1, 2, 2, 3, 4))):
            if position and self.occurrences >= MAX_OCCURRENCES:
                break
            member, columns = self.member(depth)
            scope += columns
            glue = "" if not position else self.random.choice((" JOIN ", " JOIN ", " CROSS JOIN "))
            if glue:
                parts.append(glue)
            parts.append(position)
            if glue == " JOIN ":
                earlier = scope[: -len(columns)]
                parts.append(" ON " + self.known(self.join_condition(earlier, columns, scope)))
            members.append(member)
        return From(tuple(parts), tuple(members)), scope

    def join_condition(
        self, left: Sequence[Expression], right: Sequence[Expression], scope: Sequence[Expression]
    ) -> Expression:
        pairs = [(a, b) for a in left for b in right if a.type == b.type]
        if not pairs or self.random.random() < 0.2:
            return self.predicate(scope, 1)
        a, b = self.random.choice(pairs)
        symbol = self.random.choice(("=", "=", "=", "<", "<>"))
        return self.compare(a, symbol, b)

    def member(self, depth: int) -> tuple[Member, list[Expression]]:
        self.aliases += 1
        alias = f"m{self.aliases}"
        if depth and self.random.random() < 0.3:
            types = self.types()
            node: Linear = self.linear(types, depth - 1)
            names = [(f"c{i}", t) for i, t in enumerate(types)]
        else:
            node = Scan(
                self.occurrences,
                relation(self.random.randrange(len(TABLES))),
                tuple((i, name) for i, (name, _) in enumerate(COLUMNS, start=1)),
            )
            self.occurrences += 1
            names = list(COLUMNS)
        return Member(node, alias), [self.column(f"{alias}.{name}", t) for name, t in names]

    def condition(self, scope: Sequence[Expression]) -> str | None:
        return self.known(self.predicate(scope, 2)) if self.random.random() < 0.5 else None

    # -- aggregates

    def aggregate(self) -> Aggregate:
        source, scope = self.source(1)
        where = self.condition(scope)
        types = [self.random.choice(scope).type for _ in range(self.random.randint(0, 2))]
        key_expressions = list({e.sql: e for e in (self.expression(t, scope) for t in types)}.values())
        keys = tuple(self.known(e) for e in key_expressions)
        calls: dict[AggregateCall, str] = {}
        for _ in range(self.random.randint(1, 3)):
            call, type_ = self.call(scope)
            calls[call] = type_
        outputs = [Output(f"k{i}", (KeyPlace(i),)) for i in range(len(keys))]
        for i, type_ in enumerate(calls.values()):
            outputs.append(self.output(i, type_))
        for output in outputs:
            self.know_places(output.parts)
        having = self.having(list(calls.values())) if self.random.random() < 0.4 else None
        condition = (where,) if where is not None else None
        plan = Aggregate(Input(source, condition), keys, tuple(calls), tuple(outputs), having)
        if self.random.random() < 0.3:
            plan = self.layered(plan, [e.type for e in key_expressions] + list(calls.values()))
        return plan

    def call(self, scope: Sequence[Expression]) -> tuple[AggregateCall, str]:
        function = self.random.choice(("count", "count", "sum", "sum", "avg", "min", "max"))
        types = {"count": ("int", "text", "bool"), "sum": ("int", "numeric"), "avg": ("int", "numeric")}
        wanted = self.random.choice(types.get(function, ("int", "numeric", "text")))
        inner = None if function == "count" and self.random.random() < 0.5 else self.expression(wanted, scope)
        test = self.predicate(scope, 1) if self.random.random() < 0.25 else None
        distinct = inner is not None and self.random.random() < 0.1
        sql = f"{function}({'DISTINCT ' if distinct else ''}{inner.sql if inner else '*'})"
        if test is not None:
            sql += f" FILTER (WHERE {test.sql})"
        given = None if inner is None else self.known(inner)
        tested = None if test is None else self.known(test)
        call = AggregateCall(function, given, tested, distinct=distinct, sql=sql)
        folded = filtered_argument(call)
        if folded is not None and test is not None:
            value = (lambda _: 1) if inner is None else inner.value
            self.meaning[folded] = lambda e: value(e) if test.value(e) is True else None
        result = {"count": "int", "avg": "avg"}.get(function, wanted)
        return call, result

    def output(self, i: int, type_: str) -> Output:
        if type_ == "int" and self.random.random() < 0.3:
            return Output(f"v{i}", ("(", CallPlace(i), " + 1)"))
        return Output(f"v{i}", (CallPlace(i),))

    def having(self, types: Sequence[str]) -> tuple[str | KeyPlace | CallPlace, ...]:
        i = self.random.randrange(len(types))
        if types[i] == "text":
            parts: tuple[str | KeyPlace | CallPlace, ...] = ("(", CallPlace(i), " IS NOT NULL)")
        else:
            parts = ("(", CallPlace(i), self.random.choice((" > 1)", " < 1)", " IS NULL)")))
        self.know_places(parts)
        return parts

    def know_places(self, parts: Sequence[str | KeyPlace | CallPlace]) -> None:
        """The meanings of the few forms that outputs over groups have here."""
        text = place_text(parts)
        name = next(place_text((p,)) for p in parts if not isinstance(p, str))
        rest = "".join(p for p in parts if isinstance(p, str))
        forms: dict[str, Callable[[Any], Any]] = {
            "": lambda v: v,
            "( + 1)": lambda v: None if v is None else v + 1,
            "( > 1)": lambda v: None if v is None else v > 1,
            "( < 1)": lambda v: None if v is None else v < 1,
            "( IS NULL)": lambda v: v is None,
            "( IS NOT NULL)": lambda v: v is not None,
        }
        self.meaning[text] = lambda e: forms[rest](e[name])

    def layered(self, plan: Aggregate, types: Sequence[str]) -> Aggregate:
        names = [o.name for o in plan.outputs]
        scope = [self.column(f"g.{n}", t) for n, t in zip(names, types, strict=True)]
        items = tuple(Item(f"o{i}", self.known(c)) for i, c in enumerate(scope))
        tested = [c for c in scope if c.type != "avg"]
        where = self.known(self.predicate(tested, 1)) if tested and self.random.random() < 0.5 else None
        return Aggregate(
            plan.input,
            plan.keys,
            plan.calls,
            plan.outputs,
            plan.having,
            (Layer(items, "g", where),),
        )

    # -- expressions: each is in parentheses where it has operators, as PostgreSQL prints them

    def column(self, sql: str, type_: str) -> Expression:
        return Expression(sql, type_, lambda e: e[sql])

    def expression(self, type_: str, scope: Sequence[Expression]) -> Expression:
        fitting = [c for c in scope if c.type == type_]
        if not fitting:
            return self.literal(type_)
        a, b = self.random.choice(fitting), self.random.choice(fitting)
        kind = self.random.random()
        if kind < 0.6:
            return a
        if type_ == "bool":
            return self.predicate(scope, 1)
        if kind < 0.75:
            other = self.literal(type_)
            return Expression(f"COALESCE({a.sql}, {other.sql})", type_, lambda e: _first(a.value(e), other.value(e)))
        if kind < 0.85:
            test = self.predicate(scope, 1)
            sql = f"CASE WHEN {test.sql} THEN {a.sql} ELSE {b.sql} END"
            return Expression(sql, type_, lambda e: a.value(e) if test.value(e) is True else b.value(e))
        symbol = "||" if type_ == "text" else "+"
        return Expression(f"({a.sql} {symbol} {b.sql})", type_, strict(lambda x, y: x + y, a, b))

    def literal(self, type_: str) -> Expression:
        value: Any = {"int": 1, "text": "x", "numeric": Decimal("1.50"), "bool": True}[type_]
        sql = {"int": "1", "text": "'x'::text", "numeric": "1.50", "bool": "true"}[type_]
        return Expression(sql, type_, lambda _: value)

    def predicate(self, scope: Sequence[Expression], depth: int) -> Expression:
        kind = self.random.random()
        if depth and kind < 0.25:
            a, b = self.predicate(scope, depth - 1), self.predicate(scope, depth - 1)
            word, meaning = self.random.choice((("AND", both), ("OR", either)))
            return Expression(f"({a.sql} {word} {b.sql})", "bool", lambda e: meaning(a.value(e), b.value(e)))
        a = self.random.choice(scope)
        if kind < 0.4:
            return Expression(f"({a.sql} IS NULL)", "bool", lambda e: a.value(e) is None)
        if a.type == "bool":
            return Expression(f"(NOT {a.sql})", "bool", lambda e: None if a.value(e) is None else not a.value(e))
        same = [c for c in scope if c.type == a.type]
        b = self.random.choice(same) if self.random.random() < 0.5 else self.literal(a.type)
        if kind < 0.5:
            sql = f"({a.sql} IS DISTINCT FROM {b.sql})"
            return Expression(sql, "bool", lambda e: a.value(e) != b.value(e))
        return self.compare(a, self.random.choice(("=", "<>", "<", ">=")), b)

    def compare(self, a: Expression, symbol: str, b: Expression) -> Expression:
        operators: dict[str, Callable[[Any, Any], bool]] = {
            "=": lambda x, y: bool(x == y),
            "<>": lambda x, y: bool(x != y),
            "<": lambda x, y: bool(x < y),
            ">=": lambda x, y: bool(x >= y),
        }
        return Expression(f"({a.sql} {symbol} {b.sql})", "bool", strict(operators[symbol], a, b))


def _first(a: Any, b: Any) -> Any:
    return b if a is None else a


# -- content


def random_row(random: Random) -> Row:
    return tuple(random.choice(VALUES[name]) for name, _ in COLUMNS)


def random_content(random: Random, most: int = 6) -> Tables:
    tables: Tables = {}
    for number in range(len(TABLES)):
        rows: Bag = Counter()
        for _ in range(random.randint(0, most)):
            rows[random_row(random)] += random.choice((1, 1, 2))
        tables[number + 1] = rows
    return tables


def random_changes(random: Random, old: Tables, most: int = 4) -> tuple[Tables, list[tuple[str, int, Row, Row | None]]]:
    """The content afterwards, and what was done: (insert | delete | update, relid, row, new row)."""
    new = {relid: Counter(rows) for relid, rows in old.items()}
    done: list[tuple[str, int, Row, Row | None]] = []
    for _ in range(random.randint(1, most)):
        relid = random.choice(sorted(new))
        rows = new[relid]
        what = random.choice(("insert", "delete", "update"))
        if what == "insert" or not rows:
            row = random_row(random)
            rows[row] += 1
            done.append(("insert", relid, row, None))
            continue
        victim = random.choice(sorted(rows, key=repr))
        rows[victim] -= 1
        if rows[victim] == 0:
            del rows[victim]
        changed: Row | None = None
        if what == "update":
            changed = random_row(random)
            rows[changed] += 1
        done.append((what, relid, victim, changed))
    return new, done


# -- as SQL


def sql_of(plan: Shape) -> str:
    if isinstance(plan, Scan):
        return f"{plan.relation.schema}.{plan.relation.name}"
    if isinstance(plan, UnionAll):
        return " UNION ALL ".join(f"({sql_of(b)})" for b in plan.branches)
    if isinstance(plan, Select):
        items = ", ".join(f"{i.sql} AS {i.name}" for i in plan.items)
        return f"SELECT {items}{_clauses(plan.source, plan.where)}"
    items = ", ".join(f"{_filled(plan, o.parts)} AS {o.name}" for o in plan.outputs)
    below = linear_rows(plan)
    sql = f"SELECT {items}{_clauses(below.source, below.where)}"
    if plan.keys:
        sql += f" GROUP BY {', '.join(f'({k})' for k in plan.keys)}"
    if plan.having is not None:
        sql += f" HAVING {_filled(plan, plan.having)}"
    for layer in plan.layers:
        outer = ", ".join(f"{i.sql} AS {i.name}" for i in layer.items)
        sql = f"SELECT {outer} FROM ({sql}) AS {layer.alias}" + (f" WHERE {layer.where}" if layer.where else "")
    return sql


def _clauses(source: From | None, where: str | None) -> str:
    text = ""
    if source is not None:
        places = [p if isinstance(p, str) else _member(source.members[p]) for p in source.parts]
        text = " FROM " + "".join(places)
    return text + (f" WHERE {where}" if where is not None else "")


def _member(member: Member) -> str:
    text = sql_of(member.node)
    return f"{text} AS {member.alias}" if isinstance(member.node, Scan) else f"({text}) AS {member.alias}"


def _filled(plan: Aggregate, parts: Sequence[str | KeyPlace | CallPlace]) -> str:
    texts = []
    for part in parts:
        if isinstance(part, KeyPlace):
            texts.append(f"({plan.keys[part.index]})")
        elif isinstance(part, CallPlace):
            texts.append(plan.calls[part.index].sql)
        else:
            texts.append(part)
    return "".join(texts)
