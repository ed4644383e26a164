"""From sqlglot's tree to function names and arguments as PostgreSQL resolves them.

sqlglot has its own classes for many functions, and for some a common class although PostgreSQL distinguishes them;
`parse` refuses a text if the tree does not show which function it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pgtrickle.errors import DefinitionError, SparkUnsupportedError
from pgtrickle.pipeline.expressions.types import DIGITS_OF_A_SCALE, NUMERIC, SCALE_HISTOGRAM, PgType, numeric

OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM",
    exp.NullSafeNEQ: "IS DISTINCT FROM",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.DPipe: "||",
}

# Class -> name and arguments in PostgreSQL's order.
_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Abs: ("abs", ("this",)),
    exp.Sign: ("sign", ("this",)),
    exp.Floor: ("floor", ("this",)),
    exp.Ceil: ("ceil", ("this",)),
    exp.Round: ("round", ("this", "decimals")),
    exp.Trunc: ("trunc", ("this", "decimals")),
    exp.Length: ("length", ("this",)),
    exp.Lower: ("lower", ("this",)),
    exp.Upper: ("upper", ("this",)),
    exp.Reverse: ("reverse", ("this",)),
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Left: ("left", ("this", "expression")),
    exp.Right: ("right", ("this", "expression")),
    exp.StrPosition: ("position", ("this", "substr")),
    exp.Replace: ("replace", ("this", "expression", "replacement")),
    exp.StartsWith: ("starts_with", ("this", "expression")),
    exp.DateBin: ("date_bin", ("this", "expression", "unit")),
    exp.SplitPart: ("split_part", ("this", "delimiter", "part_index")),
}
_TRIMS = {"": "btrim", "BOTH": "btrim", "LEADING": "ltrim", "TRAILING": "rtrim"}

_TYPES: dict[exp.DType, str] = {
    exp.DType.BOOLEAN: "bool",
    exp.DType.SMALLINT: "int2",
    exp.DType.INT: "int4",
    exp.DType.BIGINT: "int8",
    exp.DType.FLOAT: "float4",
    exp.DType.DOUBLE: "float8",
    exp.DType.TEXT: "text",
    exp.DType.VARCHAR: "varchar",
    exp.DType.CHAR: "bpchar",
    exp.DType.BPCHAR: "bpchar",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMP: "timestamp",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.VARBINARY: "bytea",
    exp.DType.UUID: "uuid",
    exp.DType.INTERVAL: "interval",
    exp.DType.JSONB: "jsonb",
}

# "position"(a, b) is (string, substring) in PostgreSQL and the reverse in sqlglot. date_part and EXTRACT return
# different types; in the tree only the printed cast of the field distinguishes them.
_AMBIGUOUS = re.compile(r"\"position\"\s*\(|\bdate_part\s*\(\s*'[^']*'\s*,", re.IGNORECASE)


def parse(sql: str) -> exp.Expr:
    """A scalar expression as pg_get_viewdef prints it."""
    if ambiguous := _AMBIGUOUS.search(sql):
        raise SparkUnsupportedError(ambiguous[0])
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except SqlglotError as error:
        raise DefinitionError(f"an expression could not be parsed: {str(error).splitlines()[0]}") from error
    return tree.transform(_without_schema, copy=False).transform(_with_histogram, copy=False)


def _without_schema(tree: exp.Expr) -> exp.Expr:
    """Statements of states qualify functions, which PostgreSQL does not print."""
    if isinstance(tree, exp.Dot) and isinstance(tree.this, exp.Identifier) and isinstance(tree.expression, exp.Func):
        return tree.expression if tree.this.this == "pg_catalog" else tree
    return tree


def _with_histogram(tree: exp.Expr) -> exp.Expr:
    """The histogram of scales as one function."""
    if not isinstance(tree, exp.Cast) or not _is_numeric(tree.to):
        return tree
    power = tree.this.unnest()
    digits = power.expression.unnest() if isinstance(power, exp.DPipe) and _is_ten_to_the(power.this) else None
    if not isinstance(digits, exp.Mul) or integer(digits.this) != DIGITS_OF_A_SCALE:
        return tree
    scale = digits.expression
    if not isinstance(scale, exp.Anonymous) or scale.this != "scale":
        return tree
    return exp.Anonymous(this=SCALE_HISTOGRAM, expressions=scale.expressions)


def _is_ten_to_the(tree: exp.Expr) -> bool:
    return isinstance(tree, exp.Literal) and tree.is_string and tree.this == "1e"


def _is_numeric(type_: exp.DataType) -> bool:
    return type_.this == exp.DType.DECIMAL and not type_.expressions


def call(tree: exp.Expr) -> tuple[str, list[exp.Expr], str | None] | None:
    """Name, arguments and the constant that is part of the entry (a field, the digits of round)."""
    match tree:
        case exp.Extract() | exp.TimestampTrunc():
            return _of_time(tree)
        case exp.TimeToStr():
            return _to_char(tree)
        case exp.Trim():
            arguments = [tree.this, *([tree.expression] if tree.args.get("expression") is not None else [])]
            return _TRIMS[str(tree.args.get("position") or "").upper()], arguments, None
        case exp.AtTimeZone():
            zone = tree.args["zone"]
            named = zone.this if isinstance(zone, exp.Cast) else zone
            return "timezone", [tree.this], str(named.this) if isinstance(named, exp.Literal) else "a variable"
        case exp.Concat():
            return "concat", tree.expressions, None
        case exp.Anonymous():
            return str(tree.this).lower(), tree.expressions, None
        case _:
            return _known_call(tree)


def _known_call(tree: exp.Expr) -> tuple[str, list[exp.Expr], str | None] | None:
    """A function that has a class in sqlglot."""
    if type(tree) not in _CALLS:
        return None
    name, fields = _CALLS[type(tree)]
    unread = {k for k, v in tree.args.items() if v is not None and v is not False and v != []} - set(fields)
    if unread - {"safe", "truncate", "casts_non_integer_decimals", "is_numeric"}:
        return None
    arguments = [a for a in (tree.args.get(field) for field in fields) if a is not None]
    if name in ("round", "trunc") and len(arguments) == 2:
        digits = integer(arguments[1])
        return name, arguments[:1], "a variable" if digits is None else str(digits)
    return name, arguments, None


def _of_time(tree: exp.Extract | exp.TimestampTrunc) -> tuple[str, list[exp.Expr], str | None]:
    is_trunc = isinstance(tree, exp.TimestampTrunc)
    unit = tree.args["unit"] if is_trunc else tree.this
    argument = tree.this if is_trunc else tree.expression
    is_cast = isinstance(unit, exp.Cast)
    text = unit.this if is_cast else unit
    if not isinstance(text, exp.Var | exp.Literal):
        return "date_trunc" if is_trunc else "date_part", [argument], "a variable"
    name = str(text.this).lower()
    name = _FIELDS.get(name, name)
    if is_trunc:
        extra = [tree.args["zone"]] if tree.args.get("zone") is not None else []
        return "date_trunc", [argument, *extra], name
    return "date_part" if is_cast else "extract", [argument], name


def _to_char(tree: exp.TimeToStr) -> tuple[str, list[exp.Expr], str | None]:
    """to_char of a date, which PostgreSQL casts to timestamptz: the day is the same in every time zone."""
    argument, format_ = tree.this, tree.args["format"]
    while isinstance(format_, exp.Paren | exp.Cast):
        format_ = format_.this
    if isinstance(argument, exp.Cast) and argument.to.this == exp.DType.TIMESTAMPTZ:
        argument = argument.this
    is_constant = isinstance(format_, exp.Literal) and format_.is_string
    return "to_char", [argument], str(format_.this) if is_constant else "a variable"


_FIELDS = {"years": "year", "months": "month", "days": "day", "hours": "hour", "minutes": "minute", "seconds": "second"}


def integer(tree: exp.Expr) -> int | None:
    """A constant integer in any format that PostgreSQL prints."""
    match tree:
        case exp.Paren():
            return integer(tree.this)
        case exp.Neg():
            inner = integer(tree.this)
            return None if inner is None else -inner
        case exp.Cast() if tree.to.this in (exp.DType.INT, exp.DType.SMALLINT):
            return integer(tree.this)
        case exp.Literal() if re.match(r"-?\d+\Z", tree.this, re.ASCII):
            return int(tree.this)
        case _:
            return None


def type_named(tree: exp.DataType) -> PgType:
    """The type of a cast."""
    sizes = [integer(p.this) for p in tree.expressions if isinstance(p, exp.DataTypeParam)]
    if tree.this == exp.DType.DECIMAL:
        if not sizes:
            return NUMERIC
        precision, scale = sizes[0], sizes[1] if len(sizes) > 1 else 0
        if precision is None or scale is None or scale < 0:
            raise SparkUnsupportedError(f"the type {tree.sql('postgres')}")
        return numeric(precision, scale)
    if isinstance(tree.this, exp.Interval):  # with fields, which the constant already has
        return PgType("interval")
    name = _TYPES.get(tree.this)
    if name in ("varchar", "bpchar"):
        # CHARACTER without a length is character(1). PostgreSQL prints bpchar without a length for comparisons of
        # character; it can be compared but not stored.
        return PgType(name, length=sizes[0] if sizes else (1 if tree.this == exp.DType.CHAR else None))
    if name is not None and not sizes and not tree.expressions:
        return PgType(name)
    if tree.this == exp.DType.USERDEFINED and not sizes:
        return PgType("opaque", label=str(tree.args["kind"].sql("postgres")))
    raise SparkUnsupportedError(f"the type {tree.sql('postgres')}")


Columns = Callable[[str, str], "tuple[str, PgType]"]


def identifier(node: exp.Expr | None) -> str:
    """A name as PostgreSQL stores it."""
    if node is None:
        return ""
    return str(node.this) if node.args.get("quoted") else str(node.this).lower()
