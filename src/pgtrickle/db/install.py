"""Installs and removes our schemas, catalog and functions. Needs no extension and no superuser.

Catalog tables are created once; functions are replaced at every install.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from pgtrickle.db.connect import Connection, translated
from pgtrickle.db.statements import install_scripts, statement
from pgtrickle.errors import ConfigError
from pgtrickle.settings import ALIASES, describe

SCHEMA_VERSION = 1
INSTALL_LOCK = 0x70677472  # "pgtr"
SCHEDULER_LOCK = 0x7067_7363  # "pgsc": one active scheduler per database
_TURN_OUT_SECONDS = 10.0


def _package_version() -> str:
    try:
        return version("pgtrickle")
    except PackageNotFoundError:
        return "0+unknown"


def installed_version(conn: Connection) -> int | None:
    """The catalog's version, None when nothing is installed. Leaves a transaction open only if one was."""
    with translated(), conn.transaction():
        row = conn.execute("SELECT pg_catalog.to_regclass('pgtrickle.pgt_schema_version') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return None
        row = conn.execute("SELECT max(version) FROM pgtrickle.pgt_schema_version").fetchone()
        return None if row is None or row[0] is None else int(row[0])


def install(conn: Connection, *, as_role: str | None = None) -> None:
    """Installs or upgrades, in one transaction; repeating it is harmless.

    As the role of the session, which then owns all objects, or as a service role: see db/service.py.
    """
    with translated(), conn.transaction(), become(conn, as_role):
        conn.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        conn.execute("SET LOCAL client_min_messages = warning")
        conn.execute("SET LOCAL check_function_bodies = off")
        found = installed_version(conn)
        if found is not None and found > SCHEMA_VERSION:
            raise ConfigError(
                f"the database has catalog version {found}, this program knows up to {SCHEMA_VERSION}",
                hint="upgrade pgtrickle",
            )
        for text in install_scripts():
            _run(conn, text)
        conn.execute("SELECT pgtrickle._define_options(%s)", [_options()])
        conn.execute(statement("record_version"), [SCHEMA_VERSION, _package_version()])
        conn.execute("SELECT pgtrickle._wake('install')")


@contextmanager
def become(conn: Connection, role: str | None) -> Iterator[None]:
    """Until the block ends, whatever else the transaction does afterwards."""
    if role is None:
        yield
        return
    (before,) = conn.execute("SELECT pg_catalog.current_setting('role')").fetchone() or ("none",)
    conn.execute("SELECT pg_catalog.set_config('role', %s, true)", [role])
    yield  # an error ends the transaction, and the role with it
    conn.execute("SELECT pg_catalog.set_config('role', %s, true)", [before])


def uninstall(conn: Connection, *, drop_tables: bool = False) -> None:
    """Removes triggers, publications, schemas and everything in them, in one transaction.

    The stream tables stay as plain tables, without our hidden columns, unless `drop_tables`.
    """
    with translated(), conn.transaction():
        conn.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        conn.execute("SET LOCAL client_min_messages = warning")
        conn.execute(statement("become_owner"))
        if installed_version(conn) is None:
            conn.execute("DROP SCHEMA IF EXISTS pgtrickle_changes, pgtrickle CASCADE")
            return
        _terminate_backends(conn)
        for (publication,) in conn.execute(statement("publications_made")).fetchall():
            _run(conn, f"DROP PUBLICATION {publication}")
        tables = conn.execute(statement("storage_tables")).fetchall()
        for (table,) in tables:
            _run(
                conn, f"DROP TABLE {table} CASCADE" if drop_tables else statement("release_storage") % {"table": table}
            )
        conn.execute("SELECT pg_catalog.pg_notify('pgtrickle_wake', 'uninstall')")
        # Dropping a capture function drops the triggers that call it.
        conn.execute("DROP SCHEMA pgtrickle_changes, pgtrickle CASCADE")


def _terminate_backends(conn: Connection) -> None:
    """Terminates the sessions of the control plane and blocks its next scheduler until we commit.

    It locks objects in other orders than they are dropped here: otherwise deadlocks could occur.
    """
    deadline = time.monotonic() + _TURN_OUT_SECONDS
    while time.monotonic() < deadline:
        conn.execute(statement("terminate_backends"))
        row = conn.execute("SELECT pg_try_advisory_xact_lock(%s)", [SCHEDULER_LOCK]).fetchone()
        if row is not None and row[0]:
            return
        time.sleep(0.05)


def _run(conn: Connection, script: str) -> None:
    conn.execute(script)


def _options() -> str:
    """The known settings, for the checks of set_option()."""
    rows = [(row["name"], row) for row in describe()]
    rows += [(alias, row) for alias, name in ALIASES.items() for known, row in rows if known == name]
    return json.dumps(
        [
            {
                "name": name,
                "setting": row["name"],
                "kind": row["kind"].__name__,
                "default_value": _shown(row["default"]),
                "low": row["low"],
                "high": row["high"],
                "choices": row["choices"],
                "allowed": row["range"],
                "scope": row["scope"],
                "meaning": row["doc"],
            }
            for name, row in rows
        ]
    )


def _shown(value: object) -> str:
    """As PostgreSQL writes it; without a value, nothing."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, str | int | float) else ""
