"""Expressions that fail for a value, and how Spark reports the failure.

A value that PostgreSQL refuses (division by zero, a number out of range) raises a DefinitionError with PostgreSQL's
message. A value that PostgreSQL accepts and Spark cannot represent (a numeric of 50 digits, NaN) raises an
InexactValueError. Neither becomes NULL.
"""

from __future__ import annotations

from pgtrickle.errors import DefinitionError, InexactValueError, PgtrickleError
from pgtrickle.pipeline.executor_errors import reported, written
from pgtrickle.pipeline.expressions.types import MOST_DIGITS, Column, Functions

DIVISION_BY_ZERO = "division by zero"
OUT_OF_RANGE = "value out of range"

# Spark's error conditions in ANSI mode, in the order in which they are searched for.
_SPARK = (
    (("DIVIDE_BY_ZERO", "REMAINDER_BY_ZERO"), DefinitionError(DIVISION_BY_ZERO)),
    (
        ("NUMERIC_VALUE_OUT_OF_RANGE", "CAST_INVALID_INPUT"),
        InexactValueError(f"a numeric value does not fit {MOST_DIGITS} digits exactly"),
    ),
    (("ARITHMETIC_OVERFLOW", "CAST_OVERFLOW"), DefinitionError(OUT_OF_RANGE)),
)


def refused(f: Functions, message: str) -> Column:
    """A column that fails with PostgreSQL's error."""
    return f.raise_error(f.lit(written(DefinitionError(message))))


def inexact(f: Functions, message: str) -> Column:
    """A column that fails because Spark cannot represent the value."""
    return f.raise_error(f.lit(written(InexactValueError(message))))


def failure(text: str) -> PgtrickleError | None:
    """The error that the text of Spark's exception contains; None if it is not one of ours."""
    if (ours := reported(text)) is not None:
        return ours
    return next((type(e)(e.message) for codes, e in _SPARK if any(code in text for code in codes)), None)
