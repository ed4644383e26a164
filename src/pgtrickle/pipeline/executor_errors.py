"""Transports our errors out of an executor: Spark passes on only the text of an exception.

So the text contains the error, in a form that can be extracted from Spark's own message. A message may quote a value
of a row that looks like this form: it is made harmless, because it would be read as an error of an executor.
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
    """Executors cannot reach the database, or lack our package: the driver has to load the table."""

    code = "PGT303"


class ReportedError(Exception):
    """Raised in an executor; only its text reaches the driver."""


@contextmanager
def reporting(*, unable: bool = False) -> Iterator[None]:
    """Raises our errors as text. `unable`: they mean that this executor cannot be used at all."""
    try:
        yield
    except PgtrickleError as error:
        # Neither its text nor the traceback contains session data.
        raise ReportedError(written(error, ExecutorsUnableError.code if unable else error.code)) from None


def written(error: PgtrickleError, code: str | None = None) -> str:
    """The error as a text that `reported` can parse; the message is for Spark's log."""
    parts = json.dumps([code or error.code, error.message, error.hint, error.sqlstate])
    quoted = error.message.replace("<pgtrickle:", "<pgtrickle :")
    return f"{quoted} <pgtrickle:{base64.urlsafe_b64encode(parts.encode()).decode()}>"


def reported(text: str) -> PgtrickleError | None:
    """The error of an executor in the text of a Spark exception."""
    for match in _CARRIED.finditer(text):
        if (error := _read(match.group(1))) is not None:
            return error
    if _NO_PACKAGE in text:
        return ExecutorsUnableError("the executors do not have the package pgtrickle")
    return None


def _read(parts: str) -> PgtrickleError | None:
    """None: it was not written by `written`."""
    try:
        code, message, hint, sqlstate = json.loads(base64.urlsafe_b64decode(parts))
        error = _by_code(PgtrickleError)[code](message, hint=hint)
    except (ValueError, KeyError, TypeError):
        return None
    error.sqlstate = sqlstate
    return error


def _by_code(kind: type[PgtrickleError]) -> dict[str, type[PgtrickleError]]:
    kinds = {kind.code: kind}
    for child in kind.__subclasses__():
        kinds |= _by_code(child)
    return kinds
