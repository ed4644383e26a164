"""Implicit casts: PostgreSQL's choice of a common type, and the casts to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.comparisons import COMPARISONS
from pgtrickle.pipeline.expressions.entries import Entry
from pgtrickle.pipeline.expressions.folding import folded
from pgtrickle.pipeline.expressions.listed import BY_KEY, CASTS
from pgtrickle.pipeline.expressions.literals import constant
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node
from pgtrickle.pipeline.expressions.numbers import same_shape
from pgtrickle.pipeline.expressions.types import (
    BOOL,
    FLOATS,
    INTEGERS,
    MOST_DIGITS,
    NUMBERS,
    NUMERIC,
    TEXT,
    TEXTS,
    UNKNOWN,
    UTC,
    PgType,
    combined,
    date_style,
    time_zone,
)

_WHOLE_DIGITS = {"int2": 5, "int4": 10, "int8": 19}
_ARITHMETIC = ("+", "-", "*", "/", "%")


def constant_numeric(text: str) -> Constant:
    """A literal with a point, an exponent or too many digits for bigint."""
    if "e" in text.lower():
        raise SparkUnsupportedError(f"the constant {text}")
    return Constant(*constant(text, NUMERIC))


def check_session(entry: Entry) -> None:
    """Refuses an entry that depends on DateStyle or TimeZone if the author's session has another value than Spark's."""
    if entry.iso and date_style.get().partition(",")[0].strip().upper() != "ISO":
        raise SparkUnsupportedError(entry.label, f"under DateStyle {date_style.get() or '?'}, other than ISO")
    if entry.utc and time_zone.get().upper() not in UTC:
        raise SparkUnsupportedError(entry.label, f"under TimeZone {time_zone.get() or '?'}, other than UTC")


def cast(node: Node, target: PgType) -> Node:
    """An explicit cast."""
    if node.type is UNKNOWN:
        return coerce(node, target)
    source = node.type
    if source == target or (source.name == target.name and source.name not in ("numeric", "opaque", *TEXTS)):
        return node
    entry = CASTS.get((source.name, target.name))
    if entry is None or (source.name == "opaque" and source.label != target.label):
        raise SparkUnsupportedError(
            f"the cast from {source.sql_name} to {target.sql_name}",
            hint="docs/reference/expressions.md contains the list",
        )
    check_session(entry)
    if target.name == "numeric" and target == NUMERIC:
        if source.name == "numeric":
            return node
        target = PgType("numeric", _WHOLE_DIGITS[source.name])
    elif target.name == "numeric" and source.name in INTEGERS:  # through a numeric that is wide enough
        return cast(cast(node, NUMERIC), target)
    if target.name in TEXTS:
        of = combined([source], target.name) if source.name in TEXTS else target
        target = replace(of, length=target.length)
    return folded(Call(entry, (node,), target))


def coerce(node: Node, target: PgType) -> Node:
    """An implicit cast, or a constant that gets its type from the other operand."""
    if node.type.name == target.name and target.name != "opaque":
        return node
    if node.type is not UNKNOWN:
        return cast(node, target)
    assert isinstance(node, Constant)
    if node.value is None:
        return Constant(None, replace(target, whole=1, scale=0, fixed=True) if target.name == "numeric" else target)
    if target.name == "numeric" and target != NUMERIC:
        return cast(Constant(*constant(str(node.value), NUMERIC)), target)
    return Constant(*constant(str(node.value), target))


def operands(kind: str, name: str, nodes: list[Node], parameter: str | None) -> list[Node]:
    """The arguments as PostgreSQL would cast them implicitly for this operator or function."""
    if kind == "construct":
        return [coerce(n, BOOL) if n.type is UNKNOWN and name in ("AND", "OR", "NOT") else n for n in nodes]
    known = [n.type for n in nodes if n.type is not UNKNOWN]
    if name in COMPARISONS or name in _ARITHMETIC:
        if len(nodes) == 2 and len(known) == 1:
            other = known[0] if name in COMPARISONS or known[0].name in NUMBERS else None
            nodes = nodes if other is None else [coerce(n, _open(other)) if n.type is UNKNOWN else n for n in nodes]
        return _common_operands(name, nodes)
    return [_function_argument(name, n, parameter) for n in nodes]


def _function_argument(name: str, node: Node, parameter: str | None) -> Node:
    """An argument, cast to the parameter type of PostgreSQL's function of this name."""
    if node.type.name in TEXTS or node.type is UNKNOWN:
        return coerce(node, TEXT)
    if name in ("substring", "left", "right") and node.type.name == "int2":
        return coerce(node, PgType("int4"))
    if name in ("round", "floor", "ceil", "trunc", "sign") and node.type.name == "float4" and parameter is None:
        return coerce(node, PgType("float8"))
    if name == "date_part" and node.type.name == "date":
        return coerce(node, PgType("timestamp"))
    return node


def _open(type_: PgType) -> PgType:
    """The type for a constant operand: a numeric constant has its own precision and scale, a text its own length."""
    return NUMERIC if type_.name == "numeric" else replace(type_, length=None) if type_.name == "varchar" else type_


def _common_operands(name: str, nodes: list[Node]) -> list[Node]:
    """Both operands, cast to the operand types of the operator that PostgreSQL chooses."""
    if len(nodes) != 2:
        return nodes
    left, right = (n.type for n in nodes)
    if ("operator", name, (left.name, right.name), None) in BY_KEY:
        return nodes
    common = _common_operand(left, right)
    if common is None:
        if {left.name, right.name} == {"timestamp", "timestamptz"} and name in COMPARISONS:
            return [coerce(n, PgType("timestamptz")) for n in nodes]
        if left.name == "date" and right.name == "interval":
            return [coerce(nodes[0], PgType("timestamp")), nodes[1]]
        if left.name == "date" and right.name == "int2":
            return [nodes[0], coerce(nodes[1], PgType("int4"))]
        if left.name == "int2" and right.name == "date":
            return [coerce(nodes[0], PgType("int4")), nodes[1]]
        return nodes
    return [coerce(n, common) for n in nodes]


def _common_operand(left: PgType, right: PgType) -> PgType | None:
    """The wider integer; numeric for numeric and integer; else double precision, PostgreSQL's preferred type."""
    if left.name in NUMBERS and right.name in NUMBERS:
        if left.name == right.name:
            return left
        names = {left.name, right.name}
        if names & set(FLOATS):
            return PgType("float8")
        return NUMERIC if "numeric" in names else PgType(max(names, key=INTEGERS.index))
    if left.name in TEXTS and right.name in TEXTS:
        # Trailing blanks are significant if one operand is text. character with character varying is character.
        is_character = {left.name, right.name} == {"bpchar", "varchar"}
        return PgType("bpchar") if is_character else TEXT
    return None


def alternatives(nodes: Sequence[Node], what: str) -> list[Node]:
    """The branches of CASE, COALESCE, GREATEST, LEAST in their common type (select_common_type)."""
    known = [n.type for n in nodes if n.type is not UNKNOWN]
    picked = known[0] if known else TEXT
    for type_ in known[1:]:
        picked = _wider(picked, type_, what)
    if picked.name == "bpchar" and not all(n.type == picked or _is_null(n) for n in nodes):
        # character without a length: trailing blanks would be part of the value, and are not encoded
        raise SparkUnsupportedError(f"{what} with {picked.sql_name} and anything but {picked.sql_name}")
    return [coerce(n, _open(picked)) for n in nodes]


def _is_null(node: Node) -> bool:
    return isinstance(node, Constant) and node.value is None


def _wider(picked: PgType, other: PgType, what: str) -> PgType:
    if picked.name == other.name and picked.label == other.label:
        return picked
    if picked.name in NUMBERS and other.name in NUMBERS:
        name = max(picked.name, other.name, key=NUMBERS.index)
        return NUMERIC if name == "numeric" else PgType(name)
    if picked.name in TEXTS and other.name in TEXTS:  # implicit casts exist in both directions, so the first type wins
        return picked if picked.name == "bpchar" else replace(picked, length=None)
    if {picked.name, other.name} == {"date", "timestamp"}:
        return PgType("timestamp")
    raise SparkUnsupportedError(f"{what} with types {picked.sql_name} and {other.sql_name}")


def typed_result(entry: Entry, arguments: Sequence[Node]) -> PgType:
    """The result type, with the bounds of its values."""
    types = [a.type for a in arguments]
    if entry.shape is not None:
        return entry.shape(types)
    if entry.result == "numeric":
        shape = same_shape(types)
        if shape.whole + shape.scale > MOST_DIGITS:
            raise SparkUnsupportedError(f"{entry.label} over numerics of more than {MOST_DIGITS} digits")
        return shape
    if entry.result in TEXTS:
        texts = [t for t in types if t.name in TEXTS]
        lengths = {t.length for t in texts}
        made = combined(texts, entry.result)
        return replace(made, length=lengths.pop()) if entry.kind == "construct" and len(lengths) == 1 else made
    return replace(types[-1]) if entry.result == "opaque" else PgType(entry.result)
