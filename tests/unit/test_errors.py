"""The error tree as operators see it."""

from __future__ import annotations

from pgtrickle import errors


def _all(kind: type[errors.PgtrickleError]) -> list[type[errors.PgtrickleError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _all(child))]


def test_codes_are_distinct() -> None:
    codes = [kind.code for kind in _all(errors.PgtrickleError)]
    assert len(codes) == len(set(codes))


def test_one_line_has_code_message_and_hint_on_one_line() -> None:
    error = errors.ConfigError("no\n  Java", hint="install\none")
    assert error.one_line() == "PGT100: no Java (hint: install one)"
    assert errors.InvariantError("x").one_line() == "PGT900: x"


def test_only_transient_errors_are_retried() -> None:
    assert issubclass(errors.FencedError, errors.TransientError)
    assert not issubclass(errors.DefinitionError, errors.TransientError)
