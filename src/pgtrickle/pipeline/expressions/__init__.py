"""Expressions that Spark evaluates with PostgreSQL's results: an allow-list (ADR 16)."""

from pgtrickle.pipeline.expressions.failures import failure
from pgtrickle.pipeline.expressions.nodes import Call, Constant, Node, Reference
from pgtrickle.pipeline.expressions.resolve import equality, resolve
from pgtrickle.pipeline.expressions.syntax import Columns, parse
from pgtrickle.pipeline.expressions.translate import CONF, column, condition, join_keys, key
from pgtrickle.pipeline.expressions.types import (
    PgType,
    decode_value,
    encode_value,
    from_staged,
    pg_type,
    spark_type,
    staged_type,
)

__all__ = [
    "CONF",
    "Call",
    "Columns",
    "Constant",
    "Node",
    "PgType",
    "Reference",
    "column",
    "condition",
    "decode_value",
    "encode_value",
    "equality",
    "failure",
    "from_staged",
    "join_keys",
    "key",
    "parse",
    "pg_type",
    "resolve",
    "spark_type",
    "staged_type",
]
