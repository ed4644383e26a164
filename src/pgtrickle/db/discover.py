"""Which databases of a server have pgtrickle installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, PgtrickleError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def in_database(dsn: str, name: str) -> str:
    """The same server and role, another database."""
    return make_conninfo(dsn, dbname=name)


def server_label(dsn: str) -> str:
    """host:port, the name of a server in the catalogs of others. A socket's directory counts as a host."""
    parts = conninfo_to_dict(dsn)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}"


def origin_dsn(own: str, servers: Iterable[str], server: str, database: str) -> str:
    """The DSN of a database of the fleet that a catalog names; `server` is empty for the server of `own`."""
    if not server or server == server_label(own):
        return in_database(own, database)
    for dsn in servers:
        if server_label(dsn) == server:
            return in_database(dsn, database)
    raise ConfigError(f"server {server} does not belong to this fleet", hint="start pgtrickle run with --server for it")


def databases(conn: Connection, dsn: str) -> list[str]:
    """Databases to which we may connect and that have our catalog."""
    rows = conn.execute(statement("databases")).fetchall()
    return [name for _, name, _ in rows if is_installed(in_database(dsn, name))]


def is_installed(dsn: str) -> bool:
    """Whether the database accepts our connection and has our catalog."""
    try:
        with connect(dsn, role="probe", pooler=TRANSACTION) as conn, translated():
            row = conn.execute(statement("is_installed")).fetchone()
    except PgtrickleError:
        return False
    return bool(row and row[0])
