"""Accepts connections of schedulers and forwards their messages: one accepting thread, one thread per connection."""

from __future__ import annotations

import threading
from collections.abc import Callable
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, Listener

from pgtrickle.ipc.channel import FromScheduler, ReplyChannel, SocketReplies


class SchedulerListener:
    """`arrived` and `lost` are called from its threads."""

    def __init__(
        self,
        arrived: Callable[[ReplyChannel, FromScheduler], None],
        lost: Callable[[ReplyChannel], None],
        stop: threading.Event,
    ) -> None:
        self._arrived = arrived
        self._lost = lost
        self._stop = stop

    def start(self, listener: Listener) -> None:
        threading.Thread(target=self._accept, args=(listener,), name="accept", daemon=True).start()

    def _accept(self, listener: Listener) -> None:
        while True:
            try:
                connection = listener.accept()
            except (OSError, EOFError, AuthenticationError):  # the listener was closed, or a client disconnected
                if self._stop.wait(0.01):
                    return
                continue
            threading.Thread(target=self._receive, args=(connection,), name="receive", daemon=True).start()

    def _receive(self, connection: Connection) -> None:
        replies = SocketReplies(connection)
        try:
            while True:
                self._arrived(replies, connection.recv())
        except (OSError, EOFError):
            self._lost(replies)
