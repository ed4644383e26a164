"""Starts a server process under a guard, and keeps the private directory that belongs to it.

Directories contain the identity of their owner, so that directories of a killed machine or container are removed at the
next start.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgtrickle.errors import ConfigError
from pgtrickle.ipc.liveness import start_time
from pgtrickle.servers import guard

OWNER_FILE = "owner.json"
LONGEST_SOCKET_PATH = 103  # of macOS; Linux: 107
SOCKET_BELOW = "/pymp-12345678/listener-12345678"
UNOWNED_SECONDS = 3600.0  # age at which a directory without owner file is deleted: its creator was killed


class GuardedProcess:
    """A running server and its guard. `pid` is the server's own. `fds`: open files that it inherits."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str],
        signals: Sequence[tuple[str, float]],
        user: tuple[int, int] | None = None,
        remove: Sequence[Path] = (),
        cwd: Path | None = None,
        fds: Sequence[int] = (),
    ) -> None:
        task = {
            "command": list(command),
            "log": str(log),
            "signals": list(signals),
            "user": user[0] if user else None,
            "group": user[1] if user else None,
            "remove": [str(path) for path in remove],
            "cwd": str(cwd or "/"),
            "fds": list(fds),
        }
        self.log = log
        self._signals = signals
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__, json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
            bufsize=0,
            pass_fds=tuple(fds),
        )
        assert self._guard.stdout is not None
        line = self._guard.stdout.readline()
        self._guard.stdout.close()
        if not line:
            assert self._guard.stderr is not None
            text = self._guard.stderr.read().decode(errors="replace").strip()
            self._close()
            raise ConfigError(f"could not start {command[0]}: {text.splitlines()[-1] if text else 'no output'}")
        self.pid = int(line)

    def returncode(self) -> int | None:
        return self._guard.poll()

    def alive(self) -> bool:
        return self._guard.poll() is None

    def signal(self, signum: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:
                pass  # it ended between the two statements

    def wait(self, timeout: float) -> bool:
        """True when it has ended."""
        try:
            self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def stop(self) -> None:
        """Asks the guard to stop the server: it sends its signals in turn and finally SIGKILL."""
        if self.alive():
            self._guard.send_signal(signal.SIGTERM)
        self._guard.wait(sum(patience for _, patience in self._signals) + 10)
        self._close()

    def _close(self) -> None:
        for pipe in (self._guard.stdin, self._guard.stdout, self._guard.stderr):
            if pipe is not None:
                pipe.close()


def free_port() -> int:
    """A port that is free now; the caller retries when another process takes it first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def port_busy(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


def traversable(path: Path, uid: int, gid: int) -> bool:
    """Whether that user may reach the directory through all its parents."""
    for folder in (path, *path.parents):
        info = folder.stat()
        if info.st_uid == uid:
            allowed = info.st_mode & 0o100
        elif info.st_gid == gid:
            allowed = info.st_mode & 0o010
        else:
            allowed = info.st_mode & 0o001
        if not allowed:
            return False
    return True


def private_directory(
    prefix: str, *, need_mib: int, user: tuple[int, int] | None = None, has_sockets: bool = False
) -> Path:
    """A new private directory on a file system with enough space, reachable by `user` when given. `has_sockets`: with
    a path that is short enough for sockets of multiprocessing in it."""
    refused = []
    longest = LONGEST_SOCKET_PATH - len(f"/{prefix}12345678{SOCKET_BELOW}")
    for name in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):  # noqa: S108  -- mkdtemp makes it private
        base = Path(name)
        if not base.is_dir() or not os.access(base, os.W_OK) or (user and not traversable(base, *user)):
            refused.append(f"{base} is not usable")
            continue
        if has_sockets and len(os.fsencode(base)) > longest:
            refused.append(f"{base} is too long: the path of a socket has at most {LONGEST_SOCKET_PATH} bytes")
            continue
        free = shutil.disk_usage(base).free >> 20
        if free < need_mib:
            refused.append(f"{base} has {free} MiB free")
            continue
        _reclaim(base, prefix)
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        directory.chmod(0o711 if user else 0o700)
        owner = {"pid": os.getpid(), "started": start_time(os.getpid())}
        (directory / OWNER_FILE).write_text(json.dumps(owner))
        return directory
    raise ConfigError(
        f"not enough disk space: {need_mib} MiB are needed for temporary files; {', '.join(refused)}",
        hint="free some space, or set TMPDIR to a file system with enough space",
    )


def _reclaim(base: Path, prefix: str) -> None:
    """Removes the directories of processes that have ended, also those without an owner file."""
    for directory in base.glob(prefix + "*"):
        try:
            info = directory.lstat()
            if info.st_uid != os.geteuid() or not stat.S_ISDIR(info.st_mode):
                continue
            if _is_abandoned(directory, time.time() - info.st_mtime):
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue


def _is_abandoned(directory: Path, age: float) -> bool:
    try:
        owner = json.loads((directory / OWNER_FILE).read_text())
        pid, started = owner["pid"], owner["started"]
    except (OSError, ValueError, KeyError, TypeError):
        return age > UNOWNED_SECONDS and len(list(directory.iterdir())) <= 1
    return isinstance(pid, int) and started is not None and start_time(pid) != started
