"""Which databases of a server have pgtrickle installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from pgtrickle.db.connect import connect
from pgtrickle.errors import PgtrickleError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def in_database(dsn: str, name: str) -> str:
    """The same server and role, another database."""
    return make_conninfo(dsn, dbname=name)


def databases(conn: Connection, dsn: str) -> list[str]:
    """Databases that we may enter and that hold our catalog. One that refuses us is passed over."""
    rows = conn.execute(
        "SELECT datname FROM pg_database "
        "WHERE datallowconn AND NOT datistemplate AND has_database_privilege(oid, 'CONNECT') ORDER BY datname"
    ).fetchall()
    return [name for (name,) in rows if _is_installed(in_database(dsn, name))]


def _is_installed(dsn: str) -> bool:
    try:
        with connect(dsn, role="launcher", autocommit=True) as conn:
            row = conn.execute("SELECT to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL").fetchone()
    except PgtrickleError:
        return False
    return bool(row and row[0])
