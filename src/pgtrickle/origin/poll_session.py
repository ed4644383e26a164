"""A session at an origin for polling, as the broker role if possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pgtrickle.broker.ledger import SourceScan
from pgtrickle.broker.scan import scan
from pgtrickle.db.connect import TRANSACTION, connect, cut_off, translated
from pgtrickle.db.database_settings import find_pooler
from pgtrickle.db.statements import statement
from pgtrickle.errors import OriginReplacedError, PgtrickleError
from pgtrickle.model.flow import Cut
from pgtrickle.settings import Sources

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

ROLE = "pgtrickle_broker"
STATEMENT_SECONDS = 5  # then the origin counts as unreachable
BACKOFF_SECONDS = (0.25, 0.5, 1.0, 2.0, 5.0)


class OriginSession:
    """Opened on demand, closed after every failure. One thread uses it; others may only cancel it."""

    def __init__(self, dsn: Callable[[], str], key: str, sources: Sources, purpose: str) -> None:
        self._dsn = dsn
        self._key = key
        self._sources = sources
        self._purpose = purpose
        self._conn: Connection | None = None
        self.has_own_role: bool | None = None

    def scan(self, sources: Sequence[tuple[int, Cut | None]]) -> SourceScan:
        try:
            conn = self._conn = self._conn or self._open()
            with translated():
                result = scan(conn, sources)
            if result.origin != self._key:
                raise OriginReplacedError(f"the database there is {result.origin}, not {self._key}")
        except PgtrickleError:
            self.close()
            raise
        return result

    def cut_off(self) -> None:
        if (conn := self._conn) is not None:
            cut_off(conn)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def _open(self) -> Connection:
        dsn = self._dsn()
        pooler = find_pooler(dsn, self._sources)
        self.has_own_role = may_become_broker(dsn)
        pins = {"statement_timeout": f"{STATEMENT_SECONDS}s", **({"role": ROLE} if self.has_own_role else {})}
        return connect(dsn, role=self._purpose, autocommit=True, pooler=pooler, pins=pins)


def may_become_broker(dsn: str) -> bool:
    """Whether the broker role exists and we may SET ROLE to it. Otherwise we poll as our own role."""
    with connect(dsn, role="probe", autocommit=True, pooler=TRANSACTION) as conn, translated():
        row = conn.execute(statement("broker_role")).fetchone()
    return bool(row and row[0])
