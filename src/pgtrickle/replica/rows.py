"""The row of a replica in its source's database: it limits trimming and decides which commits are valid."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgtrickle.db import statement, translated
from pgtrickle.db.connect import begin
from pgtrickle.db.handover import connect_again, hand_over
from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.replica.values import CatalogRow, Computed

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.replica.values import ReplicaVersion

_LOCK = 0x7067_7270 << 32  # "pgrp", with the source's oid in the low bits: only one process changes a replica at a time


def find(conn: Connection, relid: int) -> CatalogRow | None:
    return next(iter(find_all(conn, [relid])), None)


def find_all(conn: Connection, relids: Collection[int] | None = None) -> list[CatalogRow]:
    with translated():
        rows = conn.execute(statement("replica_rows"), {"relids": None if relids is None else list(relids)}).fetchall()
    return [CatalogRow.of(row) for row in rows]


def register(
    conn: Connection,
    relid: int,
    *,
    generation: str,
    location: str,
    token: str,
    attnums: Collection[int],
    computed: Sequence[Computed],
    as_text: Collection[str],
    reader: int | None,
    requested: bool,
) -> None:
    with translated():
        conn.execute(
            statement("replica_register"),
            {
                "relid": relid,
                "generation": generation,
                "location": location,
                "token": token,
                "columns": sorted(attnums),
                "computed": json.dumps([c.to_json() for c in computed]),
                "as_text": sorted(as_text),
                "reader": reader,
                "requested": requested,
            },
        )


def announce(conn: Connection, version: ReplicaVersion, token: str) -> None:
    """Raises ReplicaUnavailableError if another commit was recorded meanwhile."""
    params = {
        "relid": version.id.relid,
        "generation": version.generation,
        "committed": version.token,
        "token": token,
    }
    with translated():
        row = conn.execute(statement("replica_announce"), params).fetchone()
    if row is None:
        raise ReplicaUnavailableError("another process has changed the replica")


def record(conn: Connection, version: ReplicaVersion) -> bool:
    """False: the commit is not valid."""
    params = {
        "relid": version.id.relid,
        "generation": version.generation,
        "token": version.token,
        "cut": str(version.cut),
        "rows": version.rows,
        "files": len(version.files),
        "bytes": version.bytes,
    }
    with translated():
        return conn.execute(statement("replica_committed"), params).fetchone() is not None


def fail(conn: Connection, relid: int, message: str) -> None:
    with translated():
        conn.execute(statement("replica_failed"), {"relid": relid, "message": message})


@contextmanager
def changing(conn: Connection, relid: int) -> Iterator[Connection]:
    """A second session, whose transaction holds a lock: no other process changes this replica until it ends."""
    with translated():
        other = connect_again(hand_over(conn, snapshot=False), role="replica")
    try:
        with translated():
            begin(other, "ISOLATION LEVEL READ COMMITTED READ WRITE")
            row = other.execute("SELECT pg_catalog.pg_try_advisory_xact_lock(%s)", [_LOCK | relid]).fetchone()
        if row is None or not row[0]:
            raise ReplicaUnavailableError("another process is changing the replica")
        yield other
        with translated():
            other.commit()
    finally:
        other.close()
