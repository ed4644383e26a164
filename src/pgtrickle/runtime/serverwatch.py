"""Watches one server: who is the active launcher, is it a primary, which databases have pgtrickle."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from pgtrickle.db.connect import TRANSACTION, Connection, connect, pooler_of, translated
from pgtrickle.db.discover import in_database, is_installed
from pgtrickle.db.notify import wait_for_notify
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError
from pgtrickle.runtime.claim import Claim, new_holder
from pgtrickle.runtime.configure import find_pooler
from pgtrickle.settings import Sources
from pgtrickle.telemetry import event, redact

log = logging.getLogger(__name__)

SCAN_SECONDS = 10.0
STANDBY_SECONDS = 1.0  # between two tries to become the active launcher
RECOVERY_SECONDS = 30.0
LOST_SECONDS = 1.0
ABSENT_SECONDS = 300.0  # between two looks at a database without pgtrickle, unless it announces itself
FEW_DATABASES = 20  # so many without pgtrickle are looked at in every scan
LAUNCHER_LOCK = 0x7067_6C61  # "pgla"

STARTING, ACTIVE, WAITING, RECOVERY, LOST = "STARTING", "ACTIVE", "WAITING", "RECOVERY", "LOST"


@dataclass(frozen=True, slots=True)
class Found:
    """A database that wants a scheduler."""

    oid: int
    name: str
    dsn: str


class ServerWatch:
    """A thread per server, so that one that hangs does not hold up the others."""

    def __init__(self, server: str, sources: Sources, stop: threading.Event) -> None:
        self.server = server
        self._sources = sources
        self._holder = new_holder()
        self._stop = stop
        self.state = STARTING
        self.databases: tuple[Found, ...] = ()
        self._absent: dict[int, float] = {}
        self._thread = threading.Thread(target=self._run, name=f"server {redact(server)}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def forget(self, oid: int) -> None:
        """Its scheduler has found that pgtrickle is no longer there."""
        self.databases = tuple(found for found in self.databases if found.oid != oid)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pooler = find_pooler(self.server, self._sources)
                with connect(self.server, role="launcher", autocommit=True, pooler=pooler) as conn:
                    self._attend(conn)
            except PgtrickleError as error:
                # Schedulers stay: they come back by themselves, and whoever took the lock meanwhile fences them.
                self._become(LOST, error.one_line())
                self._stop.wait(LOST_SECONDS)

    def _attend(self, conn: Connection) -> None:
        claim = Claim(conn, "launcher", LAUNCHER_LOCK, self._holder)
        while not self._stop.is_set():
            with translated():
                row = conn.execute("SELECT pg_is_in_recovery()").fetchone()
                if row is not None and row[0]:
                    self._become(RECOVERY)
                    self.databases = ()
                    self._stop.wait(RECOVERY_SECONDS)
                    return  # anew: a connection may not outlive a promotion
                if claim.take():
                    if pooler_of(conn) != TRANSACTION:
                        conn.execute("LISTEN pgtrickle_wake")
                    self._scan_for_ever(conn, claim)
                    claim.end()
                    return
            self._become(WAITING)
            self.databases = ()
            self._stop.wait(STANDBY_SECONDS)

    def _scan_for_ever(self, conn: Connection, claim: Claim) -> None:
        while not self._stop.is_set():
            with translated():
                rows = conn.execute(statement("databases")).fetchall()
                self.databases = self._installed(rows)
                self._become(ACTIVE)
                seconds = SCAN_SECONDS if self.databases else 1.0
                if pooler_of(conn) == TRANSACTION:  # nobody can be heard through it
                    self._pause(claim, seconds)
                elif wait_for_notify(conn, seconds, self._stop):
                    self._absent.clear()

    def _pause(self, claim: Claim, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._stop.wait(min(left, claim.seconds_left())):
            claim.renew()

    def _installed(self, rows: list[tuple[int, str]]) -> tuple[Found, ...]:
        known = {found.oid for found in self.databases}
        now, found = time.monotonic(), []
        absent = {oid: at for oid, at in self._absent.items() if any(oid == o for o, _ in rows)}
        for oid, name in rows:
            dsn = in_database(self.server, name)
            if oid not in known:  # those that are known tell us themselves when they are no longer ours
                is_few = len(absent) <= FEW_DATABASES
                if not is_few and now - absent.get(oid, -ABSENT_SECONDS) < ABSENT_SECONDS:
                    continue
                if not is_installed(dsn):
                    absent[oid] = now
                    continue
                absent.pop(oid, None)
            found.append(Found(oid, name, dsn))
        self._absent = absent
        return tuple(found)

    def _become(self, state: str, detail: str = "") -> None:
        if state == self.state:
            return
        said = {
            ACTIVE: "This launcher is the active one",
            WAITING: "Another launcher is active; standing by",
            RECOVERY: "The server is a standby; waiting for its promotion",
            LOST: "Server is not reachable",
        }
        level = logging.WARNING if state == LOST else logging.INFO
        fields = {"server": redact(self.server), **({"detail": detail} if detail else {})}
        log.log(level, said[state], extra=event(f"runtime.server_{state.lower()}", **fields))
        self.state = state
