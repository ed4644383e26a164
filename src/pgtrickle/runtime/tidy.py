"""What has to be looked after now and then: buffers behind their readers, capture that nobody needs, what broken loads
left, old history."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pgtrickle.apply.stage import sweep_stages
from pgtrickle.capture.install import collect_garbage
from pgtrickle.capture.trim import index_long_buffers, long_buffers, trim_all
from pgtrickle.db.connect import Connection, connect, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import PgtrickleError
from pgtrickle.telemetry import event

log = logging.getLogger(__name__)

INDEX_SECONDS = 60.0


class Tidier:
    """Works on the scheduler's connection, but for indexes: to build one beside writers means to wait for them."""

    def __init__(self, name: str, dsn: str, control: Connection, history_retention_days: int) -> None:
        self._name = name
        self._dsn = dsn
        self._control = control
        self._days = history_retention_days
        self.indexing: threading.Thread | None = None

    def tidy(self, seen: int | None = None) -> None:
        """`seen`: events of transactions before this one have been looked at."""
        with translated():
            trim_all(self._control)
            collect_garbage(self._control)
            sweep_stages(self._control)
            self._control.execute(statement("history_expire"), {"days": self._days})
            self._control.execute(statement("control_expire"), {"seen": None if seen is None else str(seen)})
            is_wanted = bool(long_buffers(self._control))
        if is_wanted and (self.indexing is None or not self.indexing.is_alive()):
            self.indexing = threading.Thread(target=self._index, name=f"index {self._name}", daemon=True)
            self.indexing.start()

    def _index(self) -> None:
        try:
            pooler = pooler_of(self._control)
            with connect(self._dsn, role="index", autocommit=True, pooler=pooler) as conn, translated():
                index_long_buffers(conn, bounded=lambda: _cancelled_after(conn, INDEX_SECONDS))
        except PgtrickleError as error:
            log.warning(
                "Buffers were not looked after",
                extra=event("capture.index_failed", database=self._name, detail=error.one_line()),
            )


@contextmanager
def _cancelled_after(conn: Connection, seconds: float) -> Iterator[None]:
    """What `conn` runs then; one that ends just before may take the cancellation to the next, which is tried again."""
    timer = threading.Timer(seconds, conn.cancel_safe)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
