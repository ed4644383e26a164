"""Periodic clean-up: trims and compacts change buffers, removes unneeded capture, staging tables of failed
loads and old history."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from pgtrickle.apply.stage import sweep_stages
from pgtrickle.capture.compact import Compactor, crowded
from pgtrickle.capture.install import collect_garbage
from pgtrickle.capture.trim import hollow_buffers, index_long_buffers, long_buffers, release_space, trim_all
from pgtrickle.db.connect import Connection, connect, pooler_of, translated
from pgtrickle.db.statements import statement
from pgtrickle.define.restored import adopt_restored
from pgtrickle.errors import PgtrickleError
from pgtrickle.replica.drop import drop_unused
from pgtrickle.replica.roots import root_of
from pgtrickle.settings import Settings
from pgtrickle.telemetry import BUFFER_COMPACTED, BUFFER_RELEASED, BUFFERS_FAILED, event

log = logging.getLogger(__name__)

STATEMENT_SECONDS = 60.0  # for an index, or for compacting a share of a buffer
COMPACT_SECONDS = 30.0  # between two counts of rows
RELEASE_SECONDS = 60.0  # between two attempts to release space, which an old snapshot may prevent


class Cleaner:
    """Uses the scheduler's connection, except for long operations: indexes, which wait for writers, and compaction."""

    def __init__(self, name: str, dsn: str, control: Connection) -> None:
        self._name = name
        self._dsn = dsn
        self._control = control
        self._compactor = Compactor()
        self._counted = float("-inf")
        self._released = float("-inf")
        self.beside: threading.Thread | None = None

    def tidy(self, settings: Settings, seen: int | None = None) -> None:
        """`seen`: events of transactions before this one have been processed."""
        adopt_restored(self._control)
        with translated():
            trim_all(self._control)
            collect_garbage(self._control)
            sweep_stages(self._control)
            drop_unused(self._control, root_of(settings.replica_root, os.environ))
            self._control.execute(statement("history_expire"), {"days": settings.history_retention_days})
            self._control.execute(statement("control_expire"), {"seen": None if seen is None else str(seen)})
            self._control.execute(statement("readings_expire"))
            self._control.execute(statement("moves_expire"))
            if self.beside is not None and self.beside.is_alive():
                return
            threshold = settings.compact_threshold
            is_long = bool(long_buffers(self._control))
            is_crowded = self._may_count() and bool(crowded(self._control, threshold))
            may_release = time.monotonic() - self._released >= RELEASE_SECONDS
            is_hollow = may_release and bool(hollow_buffers(self._control))
        if is_long or is_crowded or is_hollow:
            self.beside = threading.Thread(
                target=self._look_after,
                args=(threshold if is_crowded else None,),
                name=f"buffers {self._name}",
                daemon=True,
            )
            self.beside.start()

    def _may_count(self) -> bool:
        return self._compactor.is_waiting or time.monotonic() - self._counted >= COMPACT_SECONDS

    def _look_after(self, threshold: int | None) -> None:
        try:
            pooler = pooler_of(self._control)
            with connect(self._dsn, role="buffers", autocommit=True, pooler=pooler) as conn, translated():

                def bounded() -> AbstractContextManager[None]:
                    return _cancelled_after(conn, STATEMENT_SECONDS)

                if threshold is not None:
                    self._counted = time.monotonic()
                    for relid, rows in self._compactor.round(conn, threshold, bounded=bounded).items():
                        log.info(
                            "Change buffer compacted",
                            extra=event(BUFFER_COMPACTED, database=self._name, source=relid, rows=rows),
                        )
                if time.monotonic() - self._released >= RELEASE_SECONDS:
                    self._released = time.monotonic()
                    for relid in release_space(conn, bounded=bounded):
                        log.info(
                            "Space of an empty change buffer released",
                            extra=event(BUFFER_RELEASED, database=self._name, source=relid),
                        )
                index_long_buffers(conn, bounded=bounded)
        except PgtrickleError as error:
            log.warning(
                "Maintenance of change buffers failed",
                extra=event(BUFFERS_FAILED, database=self._name, detail=error.one_line()),
            )


@contextmanager
def _cancelled_after(conn: Connection, seconds: float) -> Iterator[None]:
    """Cancels what `conn` runs then. If a statement ends just before, the next one may be cancelled; it is retried."""
    timer = threading.Timer(seconds, conn.cancel_safe)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
