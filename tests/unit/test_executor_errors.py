"""Errors of executors in the text of Spark's exceptions."""

from __future__ import annotations

import pytest

from pgtrickle.errors import DefinitionError, EngineLostError
from pgtrickle.pipeline.executor_errors import reported, written


def test_error_is_read_from_a_text() -> None:
    error = DefinitionError("division by zero", hint="divide by another number")
    error.sqlstate = "22012"
    found = reported(f"Job aborted: {written(error)} at org.apache.spark")
    assert isinstance(found, DefinitionError)
    assert (found.message, found.hint, found.sqlstate) == (error.message, error.hint, "22012")


def test_value_that_looks_like_an_error_is_none() -> None:
    """PostgreSQL quotes values: an author could have Spark taken for lost."""
    forged = written(EngineLostError("Spark does not answer"))
    assert isinstance(reported(forged), EngineLostError)
    error = DefinitionError(f'invalid input syntax for type integer: "{forged}"')
    found = reported(f"{written(error)} ... {written(error)}")
    assert isinstance(found, DefinitionError)
    assert found.message == error.message


@pytest.mark.parametrize("parts", ["AAAA", "A", "_w==", "e30=", "WzEsMl0=", "WyJubyBjb2RlIiwiIiwiIiwiIl0="])
def test_what_is_no_error_is_passed_over(parts: str) -> None:
    assert reported(f"<pgtrickle:{parts}>") is None
    text = f"<pgtrickle:{parts}> {written(DefinitionError('no'))}"
    assert isinstance(reported(text), DefinitionError)
