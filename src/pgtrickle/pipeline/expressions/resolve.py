"""Type inference: from a syntax tree and the types of its columns to typed nodes, by PostgreSQL's rules.

Raises SparkUnsupportedError with the name and the types of the first construct that is not on the allow-list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions import syntax
from pgtrickle.pipeline.expressions.coercion import (
    alternatives,
    cast,
    check_session,
    coerce,
    constant_numeric,
    operands,
    typed_result,
)
from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.folding import folded
from pgtrickle.pipeline.expressions.listed import BY_KEY
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference
from pgtrickle.pipeline.expressions.syntax import OPERATORS, Columns
from pgtrickle.pipeline.expressions.texts import escaped
from pgtrickle.pipeline.expressions.times import Interval
from pgtrickle.pipeline.expressions.types import (
    BOOL,
    BY_CODE_POINT,
    INT4,
    INT8,
    INTEGERS,
    TEXT,
    TEXTS,
    UNKNOWN,
    UTC,
    PgType,
    combined,
    time_zone,
)

_CHOICES = {exp.Coalesce: "COALESCE", exp.Greatest: "GREATEST", exp.Least: "LEAST"}
_ANY = {"=": "OR", "<>": "AND"}  # x = ANY (...), x <> ALL (...)


# Resolves what only the caller can resolve (a column, an aggregate, a subquery); None: resolved here. Its arguments are
# the tree and a function that resolves a subtree.
Special = Callable[[exp.Expr, Callable[[exp.Expr], Node]], "Node | None"]


def resolve(tree: exp.Expr, columns: Columns) -> Node:
    """`columns(alias, name)` returns the column of the DataFrame and its type; the alias is "" if there is none."""

    def column(subtree: exp.Expr, _inner: Callable[[exp.Expr], Node]) -> Node | None:
        if not isinstance(subtree, exp.Column):
            return None
        name, type_ = columns(syntax.identifier(subtree.args.get("table")), syntax.identifier(subtree.this))
        return Reference(name, type_)

    return decided(resolve_open(tree, column))


def resolve_open(tree: exp.Expr, special: Special) -> Node:
    """The same; `special` resolves columns, and a constant without a context stays UNKNOWN."""
    return _Resolver(special).node(tree)


def resolve_inside(tree: exp.Expr, special: Special) -> Node:
    """The same, without calling `special` for the root of the tree."""
    return _Resolver(special).resolved(tree)


def decided(node: Node) -> Node:
    """A constant of unknown type becomes text."""
    return coerce(node, TEXT) if node.type is UNKNOWN else node


def operator(name: str, *arguments: Node) -> Node:
    """An operator over resolved arguments, with PostgreSQL's implicit casts."""
    return _call("operator", name, list(arguments))


def construct(name: str, *arguments: Node) -> Node:
    """AND, OR, NOT, IS NULL, COALESCE, ... over resolved arguments."""
    if name in _CHOICES.values():
        return _choice(name, list(arguments))
    return _call("construct", name, list(arguments))


def case(branches: Sequence[tuple[Node, Node]], otherwise: Node | None = None) -> Node:
    """CASE WHEN condition THEN value ... ELSE otherwise END."""
    # PostgreSQL considers ELSE first when it chooses the common type.
    last, *values = alternatives([otherwise or Constant(None, UNKNOWN), *(v for _, v in branches)], "CASE")
    name = last.type.name
    conditions = [condition for condition, _ in branches]
    arguments = [n for pair in zip(conditions, values, strict=True) for n in pair] + [last]
    entry = _entry("construct", "CASE", ("bool", name, name), None)
    return Call(entry, tuple(arguments), typed_result(entry, [*values, last]))


def equality(left: Node, right: Node) -> Call:
    """`left = right` with PostgreSQL's implicit casts; refused if `=` is not listed for the types."""
    comparison = _call("operator", "=", [left, right])
    assert isinstance(comparison, Call)
    return comparison


def not_listed(what: str) -> SparkUnsupportedError:
    return SparkUnsupportedError(what, hint="docs/reference/expressions.md contains the list")


def _constant(tree: exp.Boolean | exp.Null | exp.Literal | exp.ByteString) -> Constant:
    match tree:
        case exp.Boolean():
            return Constant(bool(tree.this), BOOL)
        case exp.Null():
            return Constant(None, UNKNOWN)
        case exp.Literal():
            return Constant(tree.this, UNKNOWN) if tree.is_string else _number(tree.this)
        case _:
            return Constant(tree.this, UNKNOWN)  # E'...', with its escapes already interpreted


class _Resolver:
    def __init__(self, special: Special) -> None:
        self.special = special

    def node(self, tree: exp.Expr) -> Node:
        by_caller = self.special(tree, self.node)
        return by_caller if by_caller is not None else self.resolved(tree)

    def resolved(self, tree: exp.Expr) -> Node:
        match tree:
            case exp.Paren():
                return self.node(tree.this)
            case exp.Boolean() | exp.Null() | exp.Literal() | exp.ByteString():
                return _constant(tree)
            case exp.Cast():
                return self.cast(tree)
            case exp.Collate():
                return self.collated(tree)
            case exp.Neg():
                return self.negative(self.node(tree.this))
            case exp.Not() | exp.And() | exp.Or() | exp.Is() | exp.Between() | exp.In():
                return self.logic(tree)
            case exp.Like() | exp.Escape():
                return self.like(tree)
            case exp.Case():
                return self.case(tree)
            case exp.Coalesce() | exp.Greatest() | exp.Least() | exp.Nullif():
                return self.choice(tree)
        if type(tree) in OPERATORS:
            return self.operator(OPERATORS[type(tree)], tree.this, tree.expression)
        return self.function(tree)

    def choice(self, tree: exp.Coalesce | exp.Greatest | exp.Least | exp.Nullif) -> Node:
        if isinstance(tree, exp.Nullif):
            return _nullif(self.node(tree.this), self.node(tree.expression))
        return _choice(_CHOICES[type(tree)], [self.node(t) for t in (tree.this, *tree.expressions)])

    def cast(self, tree: exp.Cast) -> Node:
        target = syntax.type_named(tree.to)
        return cast(self.node(tree.this), target)

    def collated(self, tree: exp.Collate) -> Node:
        node, name = self.node(tree.this), syntax.identifier(tree.expression)
        if node.type is UNKNOWN:
            node = coerce(node, TEXT)
        if node.type.name not in TEXTS or name not in BY_CODE_POINT:
            raise not_listed(f'COLLATE "{name}"')
        return replace(node, type=replace(node.type, collation=name, deterministic=True, explicit=True))

    def negative(self, node: Node) -> Node:
        if isinstance(node, Constant) and isinstance(node.value, int) and node.type in (INT4, INT8):
            return Constant(-node.value, node.type)
        return _call("operator", "-", [node])

    def operator(self, name: str, left: exp.Expr, right: exp.Expr) -> Node:
        if isinstance(right, exp.Any) or (isinstance(right, exp.Anonymous) and str(right.this).upper() == "ALL"):
            word = "ANY" if isinstance(right, exp.Any) else "ALL"
            if (name, word) not in (("=", "ANY"), ("<>", "ALL")):
                raise not_listed(f"{name} {word}")
            array = right.this if isinstance(right, exp.Any) else right.expressions[0]
            return self.one_of(name, self.node(left), *_array(array))
        return _call("operator", name, [self.node(left), self.node(right)])

    def one_of(self, name: str, left: Node, members: Sequence[exp.Expr], type_: PgType | None) -> Node:
        values = [self.node(m) for m in members]
        if type_ is not None:
            values = [cast(v, type_) for v in values]
        tests = [_call("operator", name, [left, v]) for v in values]
        result = tests[0]
        for test in tests[1:]:
            result = _call("construct", _ANY[name], [result, test])
        return result

    def logic(self, tree: exp.Expr) -> Node:
        match tree:
            case exp.Not():
                return _call("construct", "NOT", [self.node(tree.this)])
            case exp.And() | exp.Or():
                name = "AND" if isinstance(tree, exp.And) else "OR"
                return _call("construct", name, [self.node(tree.this), self.node(tree.expression)])
            case exp.Between() if tree.args.get("symmetric"):
                raise not_listed("BETWEEN SYMMETRIC")
            case exp.Between():
                value = self.node(tree.this)
                low = _call("operator", ">=", [value, self.node(tree.args["low"])])
                return _call("construct", "AND", [low, _call("operator", "<=", [value, self.node(tree.args["high"])])])
            case exp.In():
                if not tree.expressions:
                    raise not_listed("IN with anything but a list")
                return self.one_of("=", self.node(tree.this), tree.expressions, None)
        value, what = self.node(tree.this), tree.expression
        if isinstance(what, exp.Null):
            return _call("construct", "IS NOT NULL" if tree.args.get("negate") else "IS NULL", [value])
        if not isinstance(what, exp.Boolean):
            raise not_listed(f"IS {what.sql('postgres')}")
        test = _call("construct", "IS TRUE" if what.this else "IS FALSE", [value])
        return _call("construct", "NOT", [test]) if tree.args.get("negate") else test

    def like(self, tree: exp.Expr) -> Node:
        inner = tree.this if isinstance(tree, exp.Escape) else tree
        if type(inner) is not exp.Like:
            raise not_listed(inner.key.upper())
        pattern = self.node(inner.expression)
        if isinstance(tree, exp.Escape):
            escape = self.node(tree.expression)
            if not (isinstance(pattern, Constant) and isinstance(escape, Constant)) or len(str(escape.value)) > 1:
                raise not_listed("LIKE with a variable pattern or escape")
            pattern = Constant(escaped(str(pattern.value), str(escape.value)), pattern.type)
        name = "NOT LIKE" if inner.args.get("negate") else "LIKE"
        return _call("operator", name, [self.node(inner.this), pattern])

    def case(self, tree: exp.Case) -> Node:
        conditions, values = [], []
        for branch in tree.args["ifs"]:
            if tree.args.get("this") is not None:
                conditions.append(_call("operator", "=", [self.node(tree.this), self.node(branch.this)]))
            else:
                conditions.append(coerce(self.node(branch.this), BOOL))
            values.append(self.node(branch.args["true"]))
        default = tree.args.get("default")
        return case(list(zip(conditions, values, strict=True)), self.node(default) if default is not None else None)

    def function(self, tree: exp.Expr) -> Node:
        resolved_call = syntax.call(tree)
        if resolved_call is None:
            name = tree.sql_name() if isinstance(tree, exp.Func) else tree.key
            raise not_listed(f"{name.lower()} in {tree.sql('postgres')}")
        name, arguments, parameter = resolved_call
        nodes = [self.node(a) for a in arguments]
        if name == "to_char" and isinstance(tree.this, exp.Cast) and nodes[0].type.name != "date":
            nodes = [self.node(tree.this)]
        return _call("function", name, nodes, parameter)


def _number(text: str) -> Constant:
    if text.isdigit() and int(text) < 1 << 63:
        return Constant(int(text), INT4 if int(text) < 1 << 31 else INT8)
    return constant_numeric(text)


def _array(tree: exp.Expr) -> tuple[list[exp.Expr], PgType | None]:
    """The elements of ARRAY[...] and the element type of an enclosing cast."""
    while isinstance(tree, exp.Paren):
        tree = tree.this
    if isinstance(tree, exp.Cast) and tree.to.this == exp.DType.ARRAY:
        members, _ = _array(tree.this)
        return members, syntax.type_named(tree.to.expressions[0])
    if not isinstance(tree, exp.Array) or not tree.expressions:
        raise not_listed("ANY or ALL of anything but a list")
    return tree.expressions, None


def _choice(name: str, values: list[Node]) -> Node:
    values = alternatives(values, name)
    type_ = values[0].type.name
    entry = _entry("construct", name, (type_, type_), None)
    _check_texts(entry, values)
    return Call(entry, tuple(values), typed_result(entry, values))


def _nullif(left: Node, right: Node) -> Node:
    if left.type is UNKNOWN:
        left = coerce(left, TEXT if right.type is UNKNOWN else right.type)
    sides = equality(left, right).arguments
    # The type of the left operand: PostgreSQL has operators for any two integer types, and real = double precision.
    is_itself = {left.type.name, right.type.name} <= set(INTEGERS) or left.type.name == "float4"
    value = left if is_itself else sides[0]
    entry = _entry("construct", "NULLIF", (value.type.name, value.type.name), None)
    return Call(entry, (value, *sides), value.type)


def _call(kind: str, name: str, arguments: list[Node], parameter: str | None = None) -> Node:
    arguments = operands(kind, name, arguments, parameter)
    types = tuple(a.type.name for a in arguments)
    entry_types = types if name != "concat" else ("text", "text")
    entry = _entry(kind, name, entry_types, parameter, arguments)
    for position in entry.constants:
        if not isinstance(arguments[position], Constant) or arguments[position].value is None:  # type: ignore[union-attr]
            raise not_listed(f"{entry.label} with a variable {'pattern' if types[-1] == 'text' else 'interval'}")
    if types == ("timestamptz", "interval") and time_zone.get().upper() not in UTC:
        interval = arguments[1].value  # type: ignore[union-attr]
        if not isinstance(interval, Interval) or interval.months or interval.days:
            raise not_listed("timestamp with time zone +- days or months, which depends on TimeZone,")
    check_session(entry)
    _check_texts(entry, arguments)
    return folded(Call(entry, tuple(arguments), typed_result(entry, arguments)))


def _entry(
    kind: str, name: str, types: tuple[str, ...], parameter: str | None, arguments: Sequence[Node] = ()
) -> Entry:
    entry = BY_KEY.get((kind, name, types, parameter))
    if entry is None:
        shown = ", ".join(a.type.sql_name for a in arguments) or ", ".join(types)
        what = f"{name} ({shown})" if parameter is None else f"{name} of {parameter} ({shown})"
        raise not_listed(f"{kind} {what}")
    labels = {a.type.label for a in arguments if a.type.name == "opaque"}
    if len(labels) > 1:
        raise not_listed(f"{kind} {name} ({', '.join(sorted(labels))})")
    return entry


def _check_texts(entry: Entry, arguments: Sequence[Node]) -> None:
    read = combined([a.type for a in arguments if a.type.name in TEXTS], "text")
    if entry.reads and not read.deterministic:
        raise not_listed(f"{entry.kind} {entry.label} under a collation that is not deterministic")
    if entry.orders and not read.orders_by_code_point:
        raise not_listed(f"{entry.kind} {entry.label} under collation {read.collation or 'default'}, other than C,")
