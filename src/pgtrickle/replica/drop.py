"""Drops replicas: the row, so that the buffer can be trimmed, then the files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle.db import catalog, statement, translated
from pgtrickle.errors import ConfigError, ReplicaUnavailableError
from pgtrickle.replica import files, rows
from pgtrickle.replica.roots import Root, storage_of

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def drop(conn: Connection, root: Root, relid: int) -> bool:
    """False: there was none. `conn` is idle; files in another directory than `root` stay.

    Raises ReplicaUnavailableError if an object store fails. Then the row is gone, and `drop_unused` deletes the files.
    """
    with rows.changing(conn, relid) as writer, translated():
        row = writer.execute(statement("replica_drop"), {"relid": relid}).fetchone()
    if row is None:
        return False
    if row[0] is not None and row[0].startswith(f"{root}/"):
        storage_of(root).remove(row[0])
    return True


def drop_unused(conn: Connection, root: Root) -> list[int]:
    """Drops replicas without readers that no user requested, and files without a row; files of the last hour may belong
    to a replica that is being built."""
    with translated():
        unused = [row[0] for row in conn.execute(statement("replicas_unused")).fetchall()]
    dropped = []
    for relid in unused:
        try:
            dropped += [relid] if drop(conn, root, relid) else []
        except ReplicaUnavailableError:  # another process is changing it, or the object store fails
            continue
    _remove_orphans(conn, root)
    return dropped


def remove_files(conn: Connection, root: Root) -> None:
    """Removes all files of replicas of this database, which has no rows of replicas any more."""
    storage_of(root).remove(_directory(conn, root))


def _remove_orphans(conn: Connection, root: Root) -> None:
    known = {str(row.relid) for row in rows.find_all(conn)}
    try:
        storage = storage_of(root)
    except ConfigError:  # nothing can be stored there: whoever needs a replica reports it
        return
    storage.remove_orphans(_directory(conn, root), known, files.GRACE_HOURS)


def _directory(conn: Connection, root: Root) -> str:
    with translated():
        instance = catalog.read_moment(conn).instance
    return f"{root}/{instance.system_identifier}/{instance.database_oid}"
