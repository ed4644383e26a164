"""Processes that hang: found by the state of the process, by a heartbeat, or because nobody answers behind a port."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from pgtrickle.ipc.liveness import Heartbeat, StallDetector, is_stopped, start_time
from pgtrickle.servers.spark_server import speaks_http2


def test_stall_is_what_has_not_moved_for_long() -> None:
    now = 0.0
    detector = StallDetector(10.0, lambda: now)
    assert not detector.is_stalled("a")
    now = 9.0
    assert not detector.is_stalled("a")
    now = 10.0
    assert detector.is_stalled("a")
    assert not detector.is_stalled("b")
    now = 25.0
    assert detector.is_stalled("b")


def test_heartbeat_moves_with_each_beat(tmp_path: Path) -> None:
    heart = Heartbeat(tmp_path / "beat")
    assert heart.value() is None
    heart.beat()
    first = heart.value()
    time.sleep(0.02)
    heart.beat()
    assert first is not None
    assert heart.value() != first


def test_stopped_process_is_told_from_one_that_works() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        assert start_time(child.pid) is not None
        assert not is_stopped(child.pid)
        os.kill(child.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 60
        while not is_stopped(child.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert is_stopped(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not is_stopped(child.pid)


def test_port_whose_program_hangs_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not speaks_http2(port, 0.2)  # the kernel accepts, nobody answers

        def answer() -> None:
            for _ in range(2):  # the first is the one that was given up
                connection, _ = server.accept()
                with connection:
                    connection.recv(100)
                    try:
                        connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                    except OSError:
                        continue

        thread = threading.Thread(target=answer)
        thread.start()
        assert speaks_http2(port, 60)
        thread.join()
    assert not speaks_http2(port, 0.2)
