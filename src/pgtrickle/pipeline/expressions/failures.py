"""Values on which an expression fails, and how the failure leaves Spark.

What PostgreSQL refuses (division by zero, a number out of range) is a DefinitionError with PostgreSQL's words. A value
that PostgreSQL has and Spark cannot carry (a numeric of 50 digits, NaN) is an InexactValueError. Neither is ever NULL.
"""

from __future__ import annotations

from pgtrickle.errors import DefinitionError, InexactValueError, PgtrickleError
from pgtrickle.pipeline.executor_errors import reported, written
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, Column, Functions

DIVISION_BY_ZERO = "division by zero"
OUT_OF_RANGE = "value out of range"

# Spark's own errors under ANSI mode, in the order in which they are looked for.
_SPARK = (
    (("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"), DefinitionError(DIVISION_BY_ZERO)),
    (
        ("NUMERIC_VALUE_OUT_OF_RANGE", "CAST_INVALID_INPUT"),
        InexactValueError(f"a numeric value does not fit {MOST_DIGITS} digits exactly"),
    ),
    (("ARITHMETIC_OVERFLOW", "CAST_OVERFLOW"), DefinitionError(OUT_OF_RANGE)),
)


def refused(f: Functions, message: str) -> Column:
    """A column that fails as PostgreSQL does."""
    return f.raise_error(f.lit(written(DefinitionError(message))))


def inexact(f: Functions, message: str) -> Column:
    """A column that fails because its value cannot be carried."""
    return f.raise_error(f.lit(written(InexactValueError(message))))


def failure(text: str) -> PgtrickleError | None:
    """The failure of a value that the text of Spark's exception tells of; None when it tells of something else."""
    if (ours := reported(text)) is not None:
        return ours
    return next((type(e)(e.message) for codes, e in _SPARK if any(code in text for code in codes)), None)
