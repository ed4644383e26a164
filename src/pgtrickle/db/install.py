"""Installs and removes our schemas, catalog and functions. Needs no extension and no superuser.

An upgrade runs the files of sql/migrations whose number is above the catalog's version: those named *_pre.sql change
tables and drop functions with changed signatures; then the scripts of sql/install create missing objects and replace
functions and views, as at every install; then those named *_post.sql change rows. ADR 27 has the rules.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from pgtrickle import __version__
from pgtrickle.db.connect import Connection, translated
from pgtrickle.db.lock_retry import retry_locks
from pgtrickle.db.statements import install_scripts, migrations, statement
from pgtrickle.db.version import SCHEMA_VERSION, catalog_version, installed_version, refuse_newer
from pgtrickle.model.identifiers import quote_literal
from pgtrickle.settings import ALIASES, describe

INSTALL_LOCK = 0x70677472  # "pgtr"
SCHEDULER_LOCK = 0x7067_7363  # "pgsc": one active scheduler per database
_TERMINATION_SECONDS = 10.0
ROLE_MARK = "Created by pgtrickle install, for its objects."  # the comment of such a role


def install(conn: Connection, *, as_role: str | None = None) -> None:
    """Installs or upgrades, in one transaction; repeating it is harmless.

    As the role of the session, which then owns all objects, or as a service role: see db/service.py.
    """
    with translated(), conn.transaction():
        conn.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
        conn.execute("SET LOCAL client_min_messages = warning")
        conn.execute("SET LOCAL check_function_bodies = off")
        with become(conn, as_role):
            installed = catalog_version(conn)
        if installed is not None:
            refuse_newer(installed, conn.info.dbname)
            if installed.schema < SCHEMA_VERSION:
                _terminate_backends(conn)  # not as the service role, which may end its own sessions only
        with become(conn, as_role):
            if installed is None:
                _create(conn)
            else:
                since = installed.schema
                retry_locks(conn, lambda: _upgrade(conn, since))
            conn.execute("SELECT pgtrickle._wake('install')")


def _upgrade(conn: Connection, since: int) -> None:
    """Upgrades from the version `since`, which may be the current one. Sources and change buffers are not locked:
    writers and triggers continue. Refreshes and definitions wait until the upgrade is committed."""
    if since < SCHEMA_VERSION:
        tables = [name for (name,) in conn.execute(statement("catalog_tables")).fetchall()]
        conn.execute(f"LOCK TABLE {', '.join(tables)} IN ACCESS EXCLUSIVE MODE")
    for text in migrations(since, "pre"):
        _run(conn, text)
    _create(conn)
    for text in migrations(since, "post"):
        _run(conn, text)


def _create(conn: Connection) -> None:
    """Creates missing objects, and replaces functions, views and privileges by those of this version."""
    for text in install_scripts():
        _run(conn, text)
    conn.execute("SELECT pgtrickle._define_options(%s)", [_options()])
    conn.execute(statement("record_version"), [SCHEMA_VERSION, __version__])


@contextmanager
def become(conn: Connection, role: str | None) -> Iterator[None]:
    """SET ROLE until the block ends."""
    if role is None:
        yield
        return
    (before,) = conn.execute("SELECT pg_catalog.current_setting('role')").fetchone() or ("none",)
    conn.execute("SELECT pg_catalog.set_config('role', %s, true)", [role])
    yield  # an error ends the transaction, and the role with it
    conn.execute("SELECT pg_catalog.set_config('role', %s, true)", [before])


@dataclass(frozen=True, slots=True)
class Installed:
    """What `uninstall` removes, and who reads it."""

    stream_tables: tuple[str, ...]
    sources: tuple[str, ...]  # whose changes are captured
    publications: tuple[str, ...]
    subscribers: tuple[str, ...]
    readers: tuple[str, ...]  # other databases that read tables of this one


def installed_objects(conn: Connection) -> Installed | None:
    """None: pgtrickle is not installed."""
    with translated(), conn.transaction():
        conn.execute(statement("become_owner"))
        if installed_version(conn) is None:
            return None
        row = conn.execute(statement("installed_objects")).fetchone()
        assert row is not None
        return Installed(*map(tuple, row))


def drop_service_role(conn: Connection, role: str) -> str | None:
    """Drops the role that `install` created, if nothing belongs to it any more. Returns why it stays, or None."""
    with translated():
        row = conn.execute(statement("role_created"), {"role": role, "mark": ROLE_MARK}).fetchone()
        is_made, owns, quoted = row or (False, True, role)
        if not is_made:
            return None
        if owns:
            return f"role {role} stays, because it owns tables here"
        try:
            with conn.transaction():
                conn.execute(f"DROP OWNED BY {quoted}")  # privileges that were granted to it
                conn.execute(f"DROP ROLE {quoted}")
        except psycopg.Error as error:
            return f"role {role} stays: {' '.join(str(error.diag.message_primary).split())}"
    return None


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
            _run(conn, f"DROP TABLE {table} CASCADE" if drop_tables else _release(table))
        conn.execute("SELECT pg_catalog.pg_notify('pgtrickle_wake', 'uninstall')")
        # Dropping a capture function drops the triggers that call it.
        conn.execute("DROP SCHEMA pgtrickle_changes, pgtrickle CASCADE")


def _release(table: str) -> str:
    return statement("release_storage") % {"table": table, "name": quote_literal(table)}


def _terminate_backends(conn: Connection) -> None:
    """Terminates the sessions of the control plane and blocks its next scheduler until we commit.

    It locks objects in other orders than they are dropped here: otherwise deadlocks could occur.
    """
    deadline = time.monotonic() + _TERMINATION_SECONDS
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
    """The value in PostgreSQL's format; empty without a value."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value) if isinstance(value, str | int | float) else ""
