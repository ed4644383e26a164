"""Errors of ours on their way out of an executor: Spark hands on nothing of an exception but its text.

So the text carries the error, in a form that survives whatever Spark writes around it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

from pgtrickle.errors import EngineLostError, PgtrickleError

_CARRIED = re.compile(r"<pgtrickle:([A-Za-z0-9_=-]+)>")
_NO_PACKAGE = "No module named 'pgtrickle"


class ExecutorsUnableError(EngineLostError):
    """Executors do not reach the database, or lack our package: the load has to go another way."""

    code = "PGT303"


class ReportedError(Exception):
    """Raised in an executor; its text is all that arrives."""


@contextmanager
def reporting(*, unable: bool = False) -> Iterator[None]:
    """Errors of ours leave this block as text. `unable`: they say that this executor cannot work for us at all."""
    try:
        yield
    except PgtrickleError as error:
        # Nothing of the session is in its text or in the trace.
        raise ReportedError(written(error, ExecutorsUnableError.code if unable else error.code)) from None


def written(error: PgtrickleError, code: str | None = None) -> str:
    """The error as a text from which `reported` has it back; the plain words are for Spark's log."""
    parts = json.dumps([code or error.code, error.message, error.hint])
    return f"{error.message} <pgtrickle:{base64.urlsafe_b64encode(parts.encode()).decode()}>"


def reported(text: str) -> PgtrickleError | None:
    """The error that an executor has put into a failure of Spark."""
    found = _CARRIED.search(text)
    if found is not None:
        code, message, hint = json.loads(base64.urlsafe_b64decode(found.group(1)))
        return _by_code(PgtrickleError)[code](message, hint=hint)
    if _NO_PACKAGE in text:
        return ExecutorsUnableError("the executors do not have the package pgtrickle")
    return None


def _by_code(kind: type[PgtrickleError]) -> dict[str, type[PgtrickleError]]:
    found = {kind.code: kind}
    for child in kind.__subclasses__():
        found |= _by_code(child)
    return found
