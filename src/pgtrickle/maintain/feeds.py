"""Maintains change feeds: ensures that stream tables with subscribers are captured, and reports subscribers that lag.

Without subscribers a call costs nothing: an event reports the first subscriber.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

from pgtrickle.capture.install import ensure_capture
from pgtrickle.errors import PgtrickleError
from pgtrickle.publish.lag import LagWatch
from pgtrickle.publish.subscribers import Feed, alert, laggards, read_feeds
from pgtrickle.settings import Settings
from pgtrickle.telemetry import FEED_CAPTURE_FAILED, SUBSCRIBER_LAG, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0  # between two checks, while there are subscribers
CAPTURE_SECONDS = 0.3  # for a lock on a stream table that is being refreshed; retried in the next call


class FeedMaintainer:
    def __init__(self, name: str, conn: Connection) -> None:
        self._name = name
        self._conn = conn
        self._watch = LagWatch()
        self._captured: dict[int, str | None] = {}  # the last state in which each feed was correctly captured
        self._next = -math.inf

    def expect(self) -> None:
        """Something may have changed: check in the next call."""
        self._next = -math.inf

    def maintain(self, settings: Settings, now: float) -> None:
        """`now` in seconds of a monotonic clock."""
        if now < self._next:
            return
        is_followed, feeds = read_feeds(self._conn)
        self._next = now + LOOK_SECONDS if is_followed else math.inf
        self._captured = {f.relid: f.state for f in feeds if self._is_in_order(f) or self._capture(f)}
        limit = settings.publication_lag_warn_lsn
        behind = laggards(self._conn, limit) if is_followed and limit else []
        for laggard in self._watch.due_reports(behind, now):
            log.warning(
                "A subscriber lags behind; its changes are kept",
                extra=event(
                    SUBSCRIBER_LAG,
                    database=self._name,
                    table=laggard.table,
                    subscriber=laggard.name,
                    bytes=laggard.bytes,
                    limit=limit,
                ),
            )
            alert(self._conn, laggard, limit)

    def _is_in_order(self, feed: Feed) -> bool:
        return feed.state is not None and self._captured.get(feed.relid) == feed.state

    def _capture(self, feed: Feed) -> bool:
        """True: it was correctly captured."""
        try:
            return not ensure_capture(self._conn, feed.relid, feed.attnums, deadline_s=CAPTURE_SECONDS)
        except PgtrickleError as error:
            log.info(
                "A stream table is not captured for its subscribers yet",
                extra=event(FEED_CAPTURE_FAILED, database=self._name, source=feed.relid, detail=error.one_line()),
            )
            return False
