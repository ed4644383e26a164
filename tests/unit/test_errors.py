"""The error tree as operators see it."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle import errors
from pgtrickle.db.connect import translate


def _all(kind: type[errors.PgtrickleError]) -> list[type[errors.PgtrickleError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _all(child))]


def test_codes_are_distinct() -> None:
    # A class without a code of its own, of any module that is imported, is told by that of its base.
    codes = [kind.code for kind in _all(errors.PgtrickleError) if "code" in vars(kind)]
    assert len(codes) == len(set(codes))


def test_one_line_has_code_message_and_hint_on_one_line() -> None:
    error = errors.ConfigError("no\n  Java", hint="install\none")
    assert error.one_line() == "PGT100: no Java (hint: install one)"
    assert errors.InvariantError("x").one_line() == "PGT900: x"


def test_only_transient_errors_are_retried() -> None:
    assert issubclass(errors.FencedError, errors.TransientError)
    assert not issubclass(errors.DefinitionError, errors.TransientError)


@pytest.mark.parametrize(
    ("text", "kind", "sqlstate"),
    [
        ('connection failed: FATAL:  database "x" does not exist', errors.TransientError, errors.NO_SUCH_DATABASE),
        ('connection failed: FATAL:  role "x" does not exist', errors.TransientError, errors.NO_SUCH_ROLE),
        ('FATAL:  password authentication failed for user "x"', errors.ConfigError, errors.AUTHENTICATION_FAILED),
        ("connection to server failed: Connection refused", errors.TransientError, None),
    ],
)
def test_refused_connection_has_the_sqlstate_that_its_words_stand_for(
    text: str, kind: type[errors.PgtrickleError], sqlstate: str | None
) -> None:
    found = translate(psycopg.OperationalError(text))
    assert (type(found), found.sqlstate) == (kind, sqlstate)


def test_error_of_postgresql_keeps_its_sqlstate() -> None:
    found = translate(psycopg.errors.UndefinedFunction("operator does not exist: a = b"))
    assert (type(found), found.sqlstate) == (errors.SourceChangedError, errors.NO_SUCH_FUNCTION)
