"""Fingerprints of sources: whether a reader of some columns may continue. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache


def of_history(timeline: str, found: Mapping[int, str]) -> dict[int, str]:
    return {relid: f"{timeline}/{text}" for relid, text in found.items()}


def unchanged(stored: str | None, current: str | None, attnums: Collection[int]) -> bool:
    """Whether a reader of these columns may continue. Columns that only others read do not matter."""
    if stored is None or current is None:
        return False
    was, is_now = _parts(stored), _parts(current)
    return was[""] == is_now[""] and all(str(a) in is_now and was.get(str(a)) == is_now[str(a)] for a in attnums)


def same_columns(stored: str | None, current: str | None, attnums: Collection[int]) -> bool:
    """Whether columns that are read but not captured are unchanged. One without a stored state is not known to have
    changed: earlier versions did not store it."""
    if stored is None or current is None:
        return False
    was, is_now = _parts(stored), _parts(current)
    return all(was.get(str(a)) in (None, is_now.get(str(a))) for a in attnums)


def same_identity(stored: str | None, current: str | None) -> bool:
    """Whether the text of a query still refers to the same source, for a view or for a reader of columns."""
    return _same("identity", stored, current)


def same_name(stored: str | None, current: str | None) -> bool:
    return _same("name", stored, current)


def _same(part: str, stored: str | None, current: str | None) -> bool:
    if stored is None or current is None:
        return False
    return _parts(stored).get(part) == _parts(current).get(part)


@lru_cache(4096)  # every refresh has the same texts
def _parts(fingerprint: str) -> Mapping[str, str]:
    structure, *columns = fingerprint.split(" ")
    return {"": structure, **dict(c.split(":", 1) for c in columns)}
