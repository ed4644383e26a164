"""The Spark Connect server: the token, its end with its owner, and a restart."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgtrickle.errors import ConfigError, TransientError
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings

CLIENT = """
import sys
from pyspark.sql import SparkSession
session = SparkSession.builder.remote(sys.argv[1]).create()
print("count", session.range(7).count(), flush=True)
session.stop()
"""
# In a process of its own: a client that was refused keeps retrying in the background.


def client(url: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SPARK_")}
    return subprocess.run(
        [sys.executable, "-c", CLIENT, url], capture_output=True, text=True, timeout=300, check=False, env=environ
    )


def gone(pid: int, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.05)
    return False


def test_client_with_the_token_is_served(spark_server: SparkServer) -> None:
    assert "count 7" in client(spark_server.url).stdout


def test_client_without_the_token_is_refused(spark_server: SparkServer) -> None:
    bare = spark_server.url.partition(";")[0]
    for url in (bare, bare + ";token=wrong"):
        done = client(url)
        assert done.returncode != 0
        assert "count" not in done.stdout
        assert "UNAUTHENTICATED" in done.stderr or "Invalid authentication token" in done.stderr


def test_token_is_not_on_the_command_line(spark_server: SparkServer) -> None:
    token = spark_server.url.rpartition("token=")[2]
    command = Path(f"/proc/{spark_server.pid}/cmdline").read_bytes().decode()
    assert token not in command
    assert token not in spark_server.log_tail()


def test_server_listens_on_loopback_only(spark_server: SparkServer) -> None:
    inodes = {str(link.readlink()) for link in Path(f"/proc/{spark_server.pid}/fd").iterdir() if link.is_symlink()}
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{spark_server.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.add(fields[1].rpartition(":")[0])
    loopback = {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening, "no listening socket found"
    assert listening <= loopback


@pytest.mark.slow
def test_server_can_be_restarted_after_a_crash_and_leaves_nothing() -> None:
    settings = Settings(spark_driver_memory_mb=600)
    server = SparkServer.start(settings)
    server.wait_ready(300)
    server.kill()
    assert not server.alive()
    assert not server.healthy()
    server.stop()
    seconds: list[float] = []
    again = SparkServer.start(settings)
    again.wait_ready(300, seconds.append)
    assert again.alive()
    assert seconds == sorted(seconds)
    directory = again.log.parent
    again.stop()
    again.stop()
    assert gone(again.pid)
    assert not directory.exists()


OWNER = """
import sys, time
from pgtrickle.servers.spark_server import SparkServer
server = SparkServer.start()
server.wait_ready(300)
print(server.pid, server.log.parent, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_server_goes_when_its_owner_is_killed() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        pid, directory = owner.stdout.readline().split()
        owner.send_signal(signal.SIGKILL)
        owner.wait(120)
    assert gone(int(pid))
    deadline = time.monotonic() + 120
    while Path(directory).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(directory).exists()


def test_a_start_that_cannot_work_says_why_in_one_line() -> None:
    server = SparkServer.start(Settings(spark_master="nonsense"))
    try:
        with pytest.raises(ConfigError, match=r"Spark did not start: .*[Mm]aster"):
            server.wait_ready(300)
    finally:
        server.stop()


def test_waiting_too_long_is_transient_and_stops_the_server() -> None:
    server = SparkServer.start()
    with pytest.raises(TransientError, match="not ready after"):
        server.wait_ready(0.2)
    assert not server.alive()
