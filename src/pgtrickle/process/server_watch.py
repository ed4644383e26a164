"""Watches one server: whether this launcher is active, whether it is a primary, which databases have pgtrickle."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from pgtrickle.db.connect import TRANSACTION, Connection, connect, pooler_of, translated
from pgtrickle.db.database_settings import find_pooler
from pgtrickle.db.discover import find_catalog, find_other_owner, in_database
from pgtrickle.db.notify import wait_for_notify
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError
from pgtrickle.process.leader_lock import LeaderLock, new_holder
from pgtrickle.settings import Sources
from pgtrickle.telemetry import (
    OTHER_OWNER,
    OTHER_VERSION,
    SERVER_ACTIVE,
    SERVER_LOST,
    SERVER_RECOVERY,
    SERVER_WAITING,
    SUPERUSER_SESSION,
    event,
    redact,
)

log = logging.getLogger(__name__)

LIST_SECONDS = 1.0  # between two reads of the list of databases
SCAN_SECONDS = 10.0  # between two probes of databases without pgtrickle, while they are few
STANDBY_SECONDS = 1.0  # between two attempts to become the active launcher
LOST_SECONDS = 1.0
ABSENT_SECONDS = 300.0  # between two probes of a database without pgtrickle, unless an installation notifies
FEW_DATABASES = 20  # number of databases without pgtrickle that are probed in every scan
LAUNCHER_LOCK = 0x7067_6C61  # "pgla"

STARTING, ACTIVE, WAITING, RECOVERY, LOST = "STARTING", "ACTIVE", "WAITING", "RECOVERY", "LOST"


@dataclass(frozen=True, slots=True)
class ManagedDatabaseInfo:
    """A database that needs a scheduler."""

    oid: int
    name: str
    dsn: str


@dataclass(frozen=True, slots=True)
class _Absent:
    """A database without pgtrickle: when it was probed, and how many rows had been inserted into it."""

    at: float
    inserted: int


class ServerWatch:
    """A thread per server, so that a server that hangs does not delay the others."""

    def __init__(self, server: str, sources: Sources, stop: threading.Event, recovery_seconds: float) -> None:
        self.server = server
        self._sources = sources
        self._holder = new_holder()
        self._stop = stop
        self.state = STARTING
        self.databases: tuple[ManagedDatabaseInfo, ...] = ()
        self._recovery_seconds = recovery_seconds
        self._absent: dict[int, _Absent] = {}
        self._others: dict[int, str] = {}  # by database: the role that installed pgtrickle, where we cannot serve it
        self._versions: dict[int, int] = {}  # by database: of catalogs that are not those of this program
        self._thread = threading.Thread(target=self._run, name=f"server {redact(server)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def forget(self, oid: int) -> None:
        """Removes a database, because its scheduler reported that pgtrickle is not installed or has another version."""
        self.databases = tuple(database for database in self.databases if database.oid != oid)

    @property
    def has_other_versions(self) -> bool:
        return bool(self._versions)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pooler = find_pooler(self.server, self._sources)
                with connect(self.server, role="launcher", autocommit=True, pooler=pooler) as conn:
                    self._run_session(conn)
            except PgtrickleError as error:
                # Schedulers keep running: they reconnect by themselves, and are fenced off if another process took
                # their lock in between.
                self._set_state(LOST, error.one_line())
                self._stop.wait(LOST_SECONDS)

    def _run_session(self, conn: Connection) -> None:
        lock = LeaderLock(conn, "launcher", LAUNCHER_LOCK, self._holder)
        while not self._stop.is_set():
            with translated():
                row = conn.execute("SELECT pg_is_in_recovery()").fetchone()
                if row is not None and row[0]:
                    self._set_state(RECOVERY)
                    self.databases = ()
                    self._stop.wait(self._recovery_seconds)
                    return  # and connect again: a connection may not survive a promotion
                if lock.take():
                    if pooler_of(conn) != TRANSACTION:
                        conn.execute("LISTEN pgtrickle_wake")
                    self._warn_of_superuser(conn)
                    self._scan_until_stopped(conn, lock)
                    lock.end()
                    return
            self._set_state(WAITING)
            self.databases = ()
            self._stop.wait(STANDBY_SECONDS)

    def _warn_of_superuser(self, conn: Connection) -> None:
        """Its sessions use SET ROLE to the service role, which code in a session could undo with RESET ROLE."""
        for name, service in conn.execute(statement("superuser_session")).fetchall():
            log.warning(
                "Connected as a superuser; connect as the service role instead",
                extra=event(
                    SUPERUSER_SESSION,
                    role=name,
                    hint=f"ALTER ROLE {service} LOGIN PASSWORD '...'; then pgtrickle run --server as {service}",
                ),
            )

    def _scan_until_stopped(self, conn: Connection, lock: LeaderLock) -> None:
        while not self._stop.is_set():
            with translated():
                rows = conn.execute(statement("databases")).fetchall()
                self.databases = self._installed(rows)
                self._set_state(ACTIVE)
                if pooler_of(conn) == TRANSACTION:  # notifications do not pass through it
                    self._pause(lock, LIST_SECONDS)
                elif wait_for_notify(conn, LIST_SECONDS, self._stop):
                    self._absent.clear()

    def _pause(self, lock: LeaderLock, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._stop.wait(min(left, lock.seconds_left())):
            lock.renew()

    def _installed(self, rows: list[tuple[int, str, int]]) -> tuple[ManagedDatabaseInfo, ...]:
        known = {database.oid for database in self.databases}
        installed = []
        self._absent = {oid: self._absent[oid] for oid, _, _ in rows if oid in self._absent}
        self._versions = {oid: self._versions[oid] for oid, _, _ in rows if oid in self._versions}
        for oid, name, inserted in rows:
            dsn = in_database(self.server, name)
            # Schedulers of known databases report an uninstallation themselves.
            if oid not in known and not self._is_new(oid, name, inserted, dsn):
                continue
            installed.append(ManagedDatabaseInfo(oid, name, dsn))
        return tuple(installed)

    def _is_new(self, oid: int, name: str, inserted: int, dsn: str) -> bool:
        """Whether pgtrickle was installed since the last probe. Probes a database that had no usable catalog: at once
        when rows were inserted, as `install` does; otherwise periodically, because statistics may be disabled. NOTIFY
        does not cross databases."""
        now, probed = time.monotonic(), self._absent.get(oid)
        if probed is not None:
            absent_ratio = len(self._absent) / FEW_DATABASES
            pause = ABSENT_SECONDS if absent_ratio > 1 else SCAN_SECONDS
            if probed.inserted != inserted:
                pause = LIST_SECONDS * absent_ratio  # other programs insert rows, too
            if now - probed.at < pause:
                return False
        if self._has_usable_catalog(oid, name, dsn):
            self._absent.pop(oid, None)
            return True
        self._absent[oid] = _Absent(now, inserted)
        return False

    def _has_usable_catalog(self, oid: int, name: str, dsn: str) -> bool:
        """Whether there is a catalog of the version that this program needs. Another version is reported once."""
        catalog = find_catalog(dsn)
        problem = None if catalog is None else catalog.problem(name)
        if catalog is not None and problem is not None:
            if self._versions.get(oid) != catalog.schema:
                log.warning(
                    "The catalog of a database has another version; the database is not served",
                    extra=event(OTHER_VERSION, database=name, detail=problem.one_line()),
                )
            self._versions[oid] = catalog.schema
            return False
        self._versions.pop(oid, None)
        if catalog is None:
            self._report_owner(oid, name, dsn)
        return catalog is not None

    def _report_owner(self, oid: int, name: str, dsn: str) -> None:
        """Reports, once, that another role installed pgtrickle in the database."""
        owner = find_other_owner(dsn)
        if owner is not None and self._others.get(oid) != owner:
            log.warning(
                "A database is not served: another role installed pgtrickle there",
                extra=event(OTHER_OWNER, database=name, role=owner, hint=f"pgtrickle run --server as {owner}"),
            )
        if owner is None:
            self._others.pop(oid, None)
        else:
            self._others[oid] = owner

    def _set_state(self, state: str, detail: str = "") -> None:
        if state == self.state:
            return
        messages = {
            ACTIVE: (SERVER_ACTIVE, "This launcher is active"),
            WAITING: (SERVER_WAITING, "Another launcher is active; this one is on standby"),
            RECOVERY: (SERVER_RECOVERY, "The server is a standby; waiting for its promotion"),
            LOST: (SERVER_LOST, "Server is not reachable"),
        }
        level = logging.WARNING if state == LOST else logging.INFO
        fields = {"server": redact(self.server), **({"detail": detail} if detail else {})}
        name, text = messages[state]
        log.log(level, text, extra=event(name, **fields))
        self.state = state
