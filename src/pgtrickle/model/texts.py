"""Types whose values are written alike: a mirror knows the rows of its table by their texts."""

from __future__ import annotations

_TEXTS = ("text", "character varying")
_INTEGERS = ("smallint", "integer", "bigint")


def same_text(there: str, here: str) -> bool:
    """Whether every value of the type `there` has the same text in the type `here`."""
    if there == here:
        return True
    if here in _TEXTS:
        return there.startswith(_TEXTS)
    return there in _INTEGERS and here in _INTEGERS and _INTEGERS.index(there) < _INTEGERS.index(here)
