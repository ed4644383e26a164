"""Which databases of a server have pgtrickle installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.db.version import CatalogVersion, catalog_version
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


def databases(conn: Connection, dsn: str) -> dict[str, CatalogVersion]:
    """Databases to which we may connect and that have our catalog, and its versions."""
    rows = conn.execute(statement("databases")).fetchall()
    found = {name: find_catalog(in_database(dsn, name)) for _, name, _ in rows}
    return {name: version for name, version in found.items() if version is not None}


def is_installed(dsn: str) -> bool:
    """Whether the database accepts our connection and has our catalog, in any version."""
    return find_catalog(dsn) is not None


def unserved(conn: Connection, dsn: str) -> dict[str, str]:
    """Databases that have our catalog and that this role cannot serve: name -> the role that installed it there."""
    rows = conn.execute(statement("databases")).fetchall()
    owners = {name: find_other_owner(in_database(dsn, name)) for _, name, _ in rows}
    return {name: owner for name, owner in owners.items() if owner is not None}


def find_other_owner(dsn: str) -> str | None:
    """The role that installed pgtrickle in the database, if this role is not a member of it."""
    try:
        with connect(dsn, role="probe", pooler=TRANSACTION) as conn, translated():
            row = conn.execute(statement("installed_by_other")).fetchone()
            return None if row is None else str(row[0])
    except PgtrickleError:
        return None


def find_catalog(dsn: str) -> CatalogVersion | None:
    """The version of our catalog. None: there is none, or the database does not accept our connection."""
    try:
        with connect(dsn, role="probe", pooler=TRANSACTION) as conn, translated():
            row = conn.execute(statement("is_installed")).fetchone()
            return catalog_version(conn) if row is not None and row[0] else None
    except PgtrickleError:
        return None
