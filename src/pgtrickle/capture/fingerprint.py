"""Notices what triggers do not see: partitions that come and go, columns that change, triggers that are missing.

Read fingerprints in the transaction that takes the cut: a write that a changed table let slip is then visible only
together with the change. A fingerprint that is not `unchanged` against the one stored with a reader's frontier means:
`ensure_capture`, then FULL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from pgtrickle.db import Connection, statement, translated


def fingerprints(conn: Connection, relids: Iterable[int]) -> dict[int, str]:
    """Fingerprint of each source that exists, in one statement."""
    wanted = sorted(set(relids))
    if not wanted:
        return {}
    with translated():
        return dict(conn.execute(statement("fingerprints"), {"relids": wanted}).fetchall())


def fingerprints_for_others(conn: Connection, relids: Iterable[int]) -> dict[int, str]:
    """The same for readers in other databases.

    When a standby is promoted, or the server restored, transactions that such a reader has seen may be lost, and their
    ids be given to others: then its cut means nothing any more, though it looks like one of this server. Readers in
    this database have gone back with it.
    """
    found = fingerprints(conn, relids)
    with translated():
        row = conn.execute(statement("timeline")).fetchone()
    assert row is not None
    return of_history(row[0], found)


def of_history(timeline: str, found: Mapping[int, str]) -> dict[int, str]:
    return {relid: f"{timeline}/{text}" for relid, text in found.items()}


def unchanged(stored: str | None, current: str | None, attnums: Collection[int]) -> bool:
    """Whether a reader of these columns may go on. Columns that only others read do not matter to it."""
    if stored is None or current is None:
        return False
    was, is_now = _parts(stored), _parts(current)
    return was[""] == is_now[""] and all(str(a) in is_now and was.get(str(a)) == is_now[str(a)] for a in attnums)


def same_identity(stored: str | None, current: str | None) -> bool:
    """Whether the text of a query still means the same source: by the rule of a view, or for whoever reads it."""
    return _same("identity", stored, current)


def same_name(stored: str | None, current: str | None) -> bool:
    return _same("name", stored, current)


def _same(part: str, stored: str | None, current: str | None) -> bool:
    if stored is None or current is None:
        return False
    return _parts(stored).get(part) == _parts(current).get(part)


@lru_cache(4096)  # the same texts come with every refresh
def _parts(fingerprint: str) -> Mapping[str, str]:
    structure, *columns = fingerprint.split(" ")
    return {"": structure, **dict(c.split(":", 1) for c in columns)}
