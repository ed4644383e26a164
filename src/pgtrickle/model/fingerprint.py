"""Fingerprints of sources: whether a reader of some columns may continue. Pure.

A column has a version, which every change of its definition changes, and a meaning (name, type, file of the table),
which a constraint, a default, a privilege or statistics leave as it is. A reader whose content was computed by
sessions that held a lock on the source until its commit goes by the meaning:

* What was captured while the column had another name is reported by the capture function, as TRUNCATE is.
* What a refresh has read while the column had another name is rejected by its fence: the name cannot change back
  before the commit, because of the lock.
* Values that ALTER TABLE computed anew are in another file.

Other readers go by the version: they read by sessions that end earlier, or in another database.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache

MEANING = "m"


def of_history(timeline: str, found: Mapping[int, str]) -> dict[int, str]:
    return {relid: f"{timeline}/{by_versions(text)}" for relid, text in found.items()}


def by_versions(fingerprint: str) -> str:
    """For a reader that has to go by versions: without the meanings."""
    return " ".join(part for part in fingerprint.split(" ") if not part.startswith(MEANING))


def unchanged(stored: str | None, current: str | None, attnums: Collection[int]) -> bool:
    """Whether a reader of these columns may continue. Columns that only others read do not matter."""
    if stored is None or current is None:
        return False
    was, is_now = _parts(stored), _parts(current)
    return was[""] == is_now[""] and all(str(a) in is_now and _same_column(str(a), was, is_now) for a in attnums)


def same_columns(stored: str | None, current: str | None, attnums: Collection[int]) -> bool:
    """Whether columns that are read but not captured are unchanged. One without a stored state is not known to have
    changed: earlier versions did not store it."""
    if stored is None or current is None:
        return False
    was, is_now = _parts(stored), _parts(current)
    return all(str(a) not in was or _same_column(str(a), was, is_now) for a in attnums)


def same_identity(stored: str | None, current: str | None) -> bool:
    """Whether the text of a query still refers to the same source, for a view or for a reader of columns."""
    return _same("identity", stored, current)


def same_name(stored: str | None, current: str | None) -> bool:
    return _same("name", stored, current)


def _same_column(attnum: str, was: Mapping[str, str], is_now: Mapping[str, str]) -> bool:
    if was.get(attnum) == is_now.get(attnum):
        return True
    meaning = was.get(MEANING + attnum)
    return meaning is not None and meaning == is_now.get(MEANING + attnum)


def _same(part: str, stored: str | None, current: str | None) -> bool:
    if stored is None or current is None:
        return False
    return _parts(stored).get(part) == _parts(current).get(part)


@lru_cache(4096)  # every refresh has the same texts
def _parts(fingerprint: str) -> Mapping[str, str]:
    structure, *columns = fingerprint.split(" ")
    return {"": structure, **dict(c.split(":", 1) for c in columns)}
