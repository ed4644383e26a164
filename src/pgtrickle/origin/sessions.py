"""Sessions in the databases whose tables are mirrored elsewhere.

A row's text must be the same in both databases, because rows are identified by it: both sides render values with the
same settings, whatever time zone or currency each database has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pgtrickle.db.catalog import read_moment
from pgtrickle.db.connect import TRANSACTION, Connection, connect, translated
from pgtrickle.db.discover import origin_dsn, server_label
from pgtrickle.db.statements import statement
from pgtrickle.db.version import require_version
from pgtrickle.errors import (
    CatalogVersionError,
    ConfigError,
    DefinitionError,
    OriginAwayError,
    OriginReplacedError,
    PgtrickleError,
)
from pgtrickle.model.catalog import Mirror
from pgtrickle.model.flow import Cut
from pgtrickle.origin.changes import OriginReader
from pgtrickle.origin.changes import Place as Reader

RENDERING = {"timezone": "UTC", "lc_monetary": "C"}
MOST_IDLE = 2  # sessions of one origin that stay open


def render_alike(conn: Connection) -> None:
    """For the rest of a transaction, in the database of a mirror."""
    calls = ", ".join("pg_catalog.set_config(%s, %s, true)" for _ in RENDERING)
    conn.execute(f"SELECT {calls}", [part for setting in RENDERING.items() for part in setting])


@dataclass(frozen=True, slots=True)
class OriginDatabase:
    """A database of the fleet, as the catalog of another one names it."""

    key: str
    server: str
    database: str


class OriginSessions:
    """Of one pipeline. `servers`: those of the fleet, as `pgtrickle run` was given them."""

    def __init__(self, servers: Sequence[str] = ()) -> None:
        self.servers = tuple(servers)
        self._idle: dict[tuple[str, str], list[Connection]] = {}
        self._lock = threading.Lock()
        self._readings: dict[str, OriginReader] = {}
        self._positions: dict[str, dict[Reader, Cut]] = {}  # by origin: positions that were not reported yet
        self._ways: dict[str, tuple[str, Mirror]] = {}  # to each of these

    def readings(self, key: str) -> OriginReader:
        with self._lock:
            return self._readings.setdefault(key, OriginReader())

    def let_go(self) -> None:
        """Releases readings that are too old."""
        with self._lock:
            open_readings = list(self._readings.values())
        for readings in open_readings:
            readings.let_go(time.monotonic())

    def note(self, key: str, reader_key: str, mirrors: Iterable[int], cut: Cut) -> None:
        """These mirrors have committed the cut; it is reported to their origin in the next session, or soon."""
        with self._lock:
            self._positions.setdefault(key, {}).update({(reader_key, mirror): cut for mirror in mirrors})

    def tell(self, conn: Connection, key: str) -> None:
        """Reports the positions of all its readers in one statement, so that buffers can be trimmed. Retried if it
        fails."""
        with self._lock:
            told = self._positions.pop(key, {})
        if told:
            with translated():
                conn.execute(
                    statement("readers_at"),
                    {
                        "keys": [reader for reader, _ in told],
                        "mirrors": [mirror for _, mirror in told],
                        "cuts": [str(cut) for cut in told.values()],
                    },
                )

    def has_to_tell(self) -> bool:
        return bool(self._positions)

    def tell_all(self) -> None:
        """Reports positions to origins without a session since."""
        with self._lock:
            waiting = [(key, *self._ways[key]) for key in self._positions if key in self._ways]
        for key, own, mirror in waiting:
            try:
                with self.session(own, mirror) as conn:
                    self.tell(conn, key)
            except PgtrickleError:
                continue  # not reachable: the next refresh reports it

    @contextmanager
    def session(self, own: str, mirror: Mirror, pooler: str = TRANSACTION) -> Iterator[Connection]:
        """A session at the origin, in autocommit mode. Raises OriginAwayError, with its name, if it does not answer.

        This also applies if its server does not belong to this fleet: it may in the next run.
        """
        try:
            dsn = origin_dsn(own, self.servers, mirror.server, mirror.database)
        except ConfigError as error:
            raise OriginAwayError(
                f"database {mirror.database} is not reachable: {error.message}", hint=error.hint
            ) from error
        with self._lock:
            self._ways[mirror.key] = own, mirror
        conn = self._take(dsn, mirror, pooler)
        try:
            yield conn
        finally:
            self._give_back(dsn, mirror.key, conn)

    @contextmanager
    def visit(self, own: str, name: str) -> Iterator[tuple[Connection, OriginDatabase]]:
        """A database by its name, or name@host:port: the one on this server takes precedence over others."""
        database, servers = self._meant(own, name)
        answers: list[str] = []  # servers that have it
        away: PgtrickleError | None = None
        for server, dsn in servers.items():
            try:
                with connect(dsn, role="probe", pooler=TRANSACTION) as conn, translated():
                    row = conn.execute(statement("has_database"), {"name": database}).fetchone()
            except PgtrickleError as error:
                away = error
                continue
            if row is not None and row[0]:
                answers.append(server)
                if server == server_label(own):
                    break  # the other servers need not be queried
        if len(answers) > 1:
            raise DefinitionError(
                f"database {database} exists on several servers: {', '.join(answers)}",
                hint=f'write "{database}@host:port"',
            )
        if not answers and away is not None:
            raise OriginAwayError(f"database {database} was not found, and one server does not answer: {away.message}")
        if not answers:
            raise DefinitionError(f"database {database} does not exist on any server of this fleet")
        label = "" if answers[0] == server_label(own) else answers[0]
        dsn = origin_dsn(own, self.servers, label, database)
        with connect(dsn, role="origin", autocommit=True, pooler=TRANSACTION, pins=RENDERING) as conn, translated():
            row = conn.execute(statement("is_installed")).fetchone()
            if row is None or not row[0]:
                raise DefinitionError(
                    f"database {database} is not managed: its changes are not captured", hint="pgtrickle install DSN"
                )
            require_version(conn)
            yield conn, OriginDatabase(read_moment(conn).instance.key, label, database)

    def _meant(self, own: str, name: str) -> tuple[str, dict[str, str]]:
        """The database and the servers to search, our own first. An @ may also be part of a database name."""
        servers = {server_label(own): own}
        for dsn in self.servers:
            servers.setdefault(server_label(dsn), dsn)
        for label in servers:
            if name.endswith(f"@{label}"):
                return name.removesuffix(f"@{label}"), {label: servers[label]}
        return name, servers

    def _take(self, dsn: str, mirror: Mirror, pooler: str) -> Connection:
        with self._lock:
            idle = self._idle.get((dsn, mirror.key), [])
            while idle:
                conn = idle.pop()
                if not (conn.closed or conn.broken):
                    return conn
        try:
            conn = connect(dsn, role="origin", autocommit=True, pooler=pooler, pins={"jit": "off", **RENDERING})
        except PgtrickleError as error:
            raise OriginAwayError(
                f"database {mirror.database} does not answer: {error.message}",
                hint="its changes are kept there; refreshes continue when it answers again",
            ) from error
        try:
            with translated():
                key = read_moment(conn).instance.key
                require_version(conn)
        except CatalogVersionError as error:
            conn.close()
            raise OriginAwayError(error.message, hint=error.hint) from error
        if key != mirror.key:
            conn.close()
            raise OriginReplacedError(
                f"database {mirror.database} is not the original database of {mirror.name}",
                hint="it was recreated or restored; the table is searched there by name",
                key=mirror.key,
            )
        return conn

    def _give_back(self, dsn: str, key: str, conn: Connection) -> None:
        if not (conn.closed or conn.broken):
            if conn.info.transaction_status.name != "IDLE":
                conn.rollback()
            with self._lock:
                idle = self._idle.setdefault((dsn, key), [])
                if len(idle) < MOST_IDLE:
                    idle.append(conn)
                    return
        conn.close()

    def close(self) -> None:
        with self._lock:
            sessions, self._idle = [c for idle in self._idle.values() for c in idle], {}
        for conn in sessions:
            conn.close()
