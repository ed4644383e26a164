"""Which databases of a server have pgtrickle installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def in_database(dsn: str, name: str) -> str:
    """The same server and role, another database."""
    return make_conninfo(dsn, dbname=name)


def databases(conn: Connection, dsn: str) -> list[str]:
    """Databases that we may enter and that hold our catalog."""
    rows = conn.execute(statement("databases")).fetchall()
    return [name for _, name, _ in rows if is_installed(in_database(dsn, name))]


def is_installed(dsn: str) -> bool:
    """Whether the database answers, lets us in and holds our catalog."""
    try:
        with connect(dsn, role="probe", pooler=TRANSACTION) as conn, translated():
            row = conn.execute(statement("is_installed")).fetchone()
    except PgtrickleError:
        return False
    return bool(row and row[0])
