"""Access to an object store from the control plane, in child processes.

The file handler of `deltalake` holds Python's global lock while it waits for the store. In this process a slow store
would stop all threads, that is all refreshes of all databases. A child runs one operation at a time and ends when this
process does, because its standard input ends. Credentials reach it through that, or through the environment.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from pgtrickle.errors import ReplicaUnavailableError
from pgtrickle.pipeline.engine.object_files import ObjectFiles, ObjectInfo

MOST_IDLE = 4  # children that are kept for the next operation
_OK, _MISSING, _FAILED = "ok", "missing", "failed"


class IsolatedFiles:
    """The operations of ObjectFiles, each in a child process. Thread-safe."""

    def __init__(self, files: ObjectFiles) -> None:
        self._files = files

    def read(self, path: str) -> bytes:
        return bytes(self._call("read", path))

    def write(self, path: str, content: bytes) -> None:
        self._call("write", path, content)

    def copy(self, local: Path, path: str) -> None:
        self._call("copy", local, path)

    def below(self, path: str, *, recursive: bool = False) -> list[ObjectInfo]:
        return list(self._call("below", path, recursive=recursive))

    def directories(self, path: str) -> list[str]:
        return list(self._call("directories", path))

    def delete(self, path: str) -> None:
        self._call("delete", path)

    def delete_all(self, path: str) -> None:
        self._call("delete_all", path)

    def _call(self, method: str, *args: Any, **options: Any) -> Any:
        child = _idle.take()
        try:
            _send(child.stdin, (self._files, method, args, options))
            kind, value = _receive(child.stdout)
        except (OSError, EOFError) as error:
            _end(child)
            raise ReplicaUnavailableError("a process that accesses the object store has ended") from error
        except BaseException:
            _end(child)
            raise
        _idle.give_back(child)
        if kind == _MISSING:
            raise FileNotFoundError(value)
        if kind == _FAILED:
            raise ReplicaUnavailableError(value)
        return value


class _Idle:
    """Children that wait for an operation."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: list[subprocess.Popen[bytes]] = []

    def take(self) -> subprocess.Popen[bytes]:
        with self._lock:
            while self._children:
                child = self._children.pop()
                if child.poll() is None:
                    return child
        # In a session of its own: Ctrl-C ends this process, and thereby the child.
        return subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def give_back(self, child: subprocess.Popen[bytes]) -> None:
        with self._lock:
            if len(self._children) < MOST_IDLE:
                self._children.append(child)
                return
        _end(child)


_idle = _Idle()


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    with child:
        return


def _send(stream: IO[bytes] | None, value: object) -> None:
    assert stream is not None
    content = pickle.dumps(value)
    stream.write(len(content).to_bytes(8, "big"))
    stream.write(content)
    stream.flush()


def _receive(stream: IO[bytes] | None) -> Any:
    """Raises EOFError at the end."""
    assert stream is not None
    header = stream.read(8)
    if len(header) < 8:
        raise EOFError
    return pickle.loads(stream.read(int.from_bytes(header, "big")))  # noqa: S301 - from our own process, through a pipe


def _serve() -> None:
    while True:
        try:
            files, method, args, options = _receive(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = (_OK, getattr(files, method)(*args, **options))
        except FileNotFoundError as error:
            reply = (_MISSING, files.clean(error))
        except ReplicaUnavailableError as error:
            reply = (_FAILED, error.message)
        except Exception as error:  # noqa: BLE001 - the caller decides; deltalake raises several kinds
            reply = (_FAILED, f"the object store of {files.root} fails: {files.clean(error)}")
        _send(sys.stdout.buffer, reply)


if __name__ == "__main__":
    _serve()
