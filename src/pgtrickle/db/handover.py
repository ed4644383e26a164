"""What another process needs to continue a session's work: server, settings, snapshot.

The executors of a bulk load are such processes. The address comes from the open connection, not from the DSN that made
it: environment variables, password files and services of this machine are not on theirs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from psycopg.conninfo import make_conninfo

from pgtrickle.db.connect import begin, connect, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

_HERE_ONLY = ("passfile", "service", "servicefile", "application_name", "connect_timeout")
# A lock wait behind DDL that waits for the original session would be a deadlock that PostgreSQL cannot detect.
LOCK_TIMEOUT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Handover:
    """`server`: start time of the server, to the microsecond; detects another server at the same address."""

    dsn: str = field(repr=False)
    server: str
    snapshot: str | None
    settings: dict[str, str]
    pooler: str

    def to_json(self) -> str:
        """With the password: for an option that Spark redacts, never for a log."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Handover:
        return cls(**json.loads(text))


def hand_over(conn: Connection, *, snapshot: bool = True) -> Handover:
    """`snapshot`: exports that of `conn`, which is in a REPEATABLE READ transaction (and in no savepoint: PostgreSQL
    refuses that). It is valid until that transaction ends.
    """
    info = conn.info
    parts = {name: value for name, value in info.get_parameters().items() if name not in _HERE_ONLY}
    # One of several hosts has answered; the others may be standbys.
    parts |= {"host": info.host, "port": str(info.port), "dbname": info.dbname, "user": info.user}
    if "hostaddr" in parts:
        parts["hostaddr"] = info.hostaddr
    if info.password:
        parts["password"] = info.password
    row = conn.execute(statement("handover"), {"snapshot": snapshot}).fetchone()
    assert row is not None
    return Handover(make_conninfo("", **parts), row[0], row[1], row[2], pooler_of(conn))


def take_over(handover: Handover, *, role: str, in_snapshot: bool) -> Connection:
    """A session like the original one; `in_snapshot`: in a read-only transaction with its snapshot.

    Otherwise in a transaction of its own.
    """
    conn = connect_again(handover, role=role)
    try:
        with translated():
            if in_snapshot:
                begin(conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY", snapshot=handover.snapshot)
            else:
                begin(conn, "ISOLATION LEVEL READ COMMITTED READ WRITE")
    except BaseException:
        conn.close()
        raise
    return conn


def connect_again(handover: Handover, *, role: str, pins: Mapping[str, str] | None = None) -> Connection:
    """A session like the original one, not in a transaction."""
    settings = {**handover.settings, "lock_timeout": str(LOCK_TIMEOUT_MS), **(pins or {})}
    conn = connect(handover.dsn, role=role, autocommit=True, pooler=handover.pooler, pins=settings)
    try:
        with translated():
            row = conn.execute("SELECT EXTRACT(EPOCH FROM pg_catalog.pg_postmaster_start_time())::text").fetchone()
            if row is None or row[0] != handover.server:
                raise ConfigError("another PostgreSQL server answers at this address")
    except BaseException:
        conn.close()
        raise
    return conn
