"""Which databases of a server have pgtrickle installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from pgtrickle.db.connect import connect, translated
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
    """Whether the catalog is there and ours: another role's installation has another control plane."""
    try:
        with connect(dsn, role="launcher", autocommit=True) as conn, translated():
            row = conn.execute(
                "SELECT EXISTS (SELECT FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace "
                "WHERE n.nspname = 'pgtrickle' AND c.relname = 'pgt_stream_tables' "
                "AND pg_has_role(c.relowner, 'USAGE'))"
            ).fetchone()
    except PgtrickleError:
        return False
    return bool(row and row[0])
