"""A network between us and Spark that loses everything: the call is given up, and its work repeated."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.pipeline.engine.spark import SparkEngine


class Gateway:
    """Passes bytes on to a port, until it loses them."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.loses = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, target in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                while self.loses.is_set():
                    time.sleep(0.02)
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def gateway(spark_url: str) -> Iterator[Gateway]:
    found = re.search(r":(\d+)", spark_url)
    assert found is not None
    gateway = Gateway(int(found[1]))
    yield gateway
    gateway.loses.clear()
    gateway.close()


def test_a_call_that_does_not_return_is_given_up(
    spark_url: str, gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    engine = SparkEngine(lambda: re.sub(r":\d+", f":{gateway.port}", spark_url, count=1))
    assert list(engine.warm_up(2)) == [1, 2]
    engine.calls.seconds = 3.0
    gateway.loses.set()
    with pytest.raises(EngineLostError):
        list(engine.warm_up(1))
    assert "do not return" in caplog.text
    gateway.loses.clear()
    engine.calls.seconds = 120.0
    assert list(engine.warm_up(1)) == [1]  # by a new connection
    engine.close()
