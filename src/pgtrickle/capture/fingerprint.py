"""Detects what triggers do not see: attached and detached partitions, changed columns, missing triggers.

Read fingerprints in the transaction that takes the cut: a write that a changed table did not capture is then visible
only together with the change. A fingerprint that is not `unchanged` against the one stored with a reader's frontier
means: `ensure_capture`, then FULL.
"""

from __future__ import annotations

from collections.abc import Iterable

from pgtrickle.db import Connection, statement, translated
from pgtrickle.model.fingerprint import of_history


def fingerprints(conn: Connection, relids: Iterable[int]) -> dict[int, str]:
    """Fingerprint of each source that exists, in one statement."""
    sorted_relids = sorted(set(relids))
    if not sorted_relids:
        return {}
    with translated():
        return dict(conn.execute(statement("fingerprints"), {"relids": sorted_relids}).fetchall())


def fingerprints_for_others(conn: Connection, relids: Iterable[int]) -> dict[int, str]:
    """The same for readers in other databases.

    When a standby is promoted, or the server restored, transactions that such a reader has seen may be lost, and their
    ids be given to others: then its cut is invalid, although it looks like a cut of this server. Readers in
    this database have gone back with it.
    """
    current = fingerprints(conn, relids)
    with translated():
        row = conn.execute(statement("timeline")).fetchone()
    assert row is not None
    return of_history(row[0], current)
