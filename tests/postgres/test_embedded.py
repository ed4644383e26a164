"""The embedded PostgreSQL: crash, restart, busy ports, unreachable binaries, and an owner that dies."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest

from pgtrickle.errors import ConfigError
from pgtrickle.servers import embedded_postgres as embedded
from pgtrickle.servers import server_process as process
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres


def gone(pid: int, seconds: float = 120) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


def answer(server: EmbeddedPostgres, text: str) -> object:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        cursor = connection.execute(text)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def test_server_survives_a_crash_on_the_same_port_and_leaves_nothing() -> None:
    server = EmbeddedPostgres.create()
    with server:
        port = server.port
        answer(server, "CREATE TABLE t AS SELECT 42 AS a")
        server.restart("immediate")
        assert answer(server, "SELECT a FROM t") == 42
        server.restart()
        assert answer(server, "SELECT a FROM t") == 42
        assert server.port == port
        directory, pid = server.data.parent, server.pid
    assert not directory.exists()
    assert gone(pid)


def test_server_listens_on_loopback_with_a_password_only(pg_server: EmbeddedPostgres) -> None:
    assert answer(pg_server, "SHOW listen_addresses") == "127.0.0.1"
    assert answer(pg_server, "SHOW unix_socket_directories") == ""
    assert answer(pg_server, "SHOW server_encoding") == "UTF8"
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(pg_server.dsn(password="wrong"))


def test_server_ignores_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "PATH": "",
        "LC_ALL": "xx_XX",
        "LANG": "nonsense",
        "PGPORT": "1",
        "PGDATA": "/x",
        "TZ": "x",
    }.items():
        monkeypatch.setenv(name, value)
    with EmbeddedPostgres.create(durable=False, settings={"max_connections": "17"}) as server:
        assert answer(server, "SHOW max_connections") == "17"
        assert answer(server, "SHOW timezone") == "UTC"


def test_a_busy_port_is_refused_in_one_line() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        server = EmbeddedPostgres.create(port=port, durable=False)
        try:
            with pytest.raises(ConfigError, match=f"port {port} is in use"):
                server.start()
        finally:
            server.close()


def test_another_port_is_tried_when_the_free_one_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        answers = iter([listener.getsockname()[1], process.free_port()])
        monkeypatch.setattr(embedded, "free_port", lambda: next(answers))
        with EmbeddedPostgres.create(durable=False) as server:
            assert server.port != listener.getsockname()[1]


def test_no_disk_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil._ntuple_diskusage(100, 99, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: full)
    with pytest.raises(ConfigError, match="not enough disk space"):
        EmbeddedPostgres.create()


def test_a_missing_wheel_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ConfigError, match="not installed"):
        EmbeddedPostgres.create()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as somebody else")
def test_binaries_that_the_other_user_cannot_reach_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = tmp_path / "closed"
    home = embedded._copy(embedded.installation(), closed)
    closed.chmod(0o700)
    monkeypatch.setattr(embedded, "installation", lambda: home)
    with EmbeddedPostgres.create(durable=False) as server:
        assert str(server.program("psql")).startswith(str(server.data.parent))
        assert answer(server, "SELECT 1") == 1


OWNER = """
import sys, time
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
server = EmbeddedPostgres.create(durable=False)
server.start()
print(server.pid, server.data.parent, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_server_and_directory_go_when_the_owner_is_killed(signum: signal.Signals) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner, owner.stdout:
        pid, directory = owner.stdout.readline().split()
        owner.send_signal(signum)
        owner.wait(120)
    assert gone(int(pid))
    deadline = time.monotonic() + 120
    while Path(directory).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(directory).exists()


def test_what_a_dead_owner_left_is_reclaimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    left = process.private_directory("pgtrickle-x-", need_mib=1)
    (left / process.OWNER_FILE).write_text('{"pid": 1, "started": "not that one"}')
    mine = process.private_directory("pgtrickle-x-", need_mib=1)
    assert not left.exists()
    assert mine.exists()
    process.private_directory("pgtrickle-x-", need_mib=1)
    assert mine.exists()


def test_sockets_are_not_put_below_a_path_that_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(deep))
    for has_sockets in (False, True):
        made = process.private_directory("pgtrickle-x-", need_mib=1, has_sockets=has_sockets)
        assert made.is_relative_to(deep) is not has_sockets
        with (
            socket.socket(socket.AF_UNIX) as listener,
            nullcontext() if has_sockets else pytest.raises(OSError, match="path too long"),
        ):
            (made / "pymp-12345678").mkdir()
            listener.bind(f"{made}{process.SOCKET_BELOW}")
        shutil.rmtree(made)
