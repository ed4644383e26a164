"""A PgBouncer in front of a test's PostgreSQL, and a neighbour: another client of the same pool."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import free_port
from tests.conftest import ROLE, ROLE_PASSWORD
from tests.packages import require_program

# What the neighbour sets for its session, as a careless client does. Any of them would do harm to a client that takes
# the session as it finds it, and none of ours may change them for the neighbour.
ODD = {
    "search_path": "nowhere",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "400ms",
    "lock_timeout": "7ms",
    "idle_in_transaction_session_timeout": "600ms",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-3",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "work_mem": "1234kB",
    "default_text_search_config": '"pg_catalog"."simple"',  # quoted, because of quote_all_identifiers
    "pg_trickle.enabled": "off",
}
# The same, of those that PgBouncer keeps per client.
ODD_PER_CLIENT = {"datestyle": "German, DMY", "timezone": "Asia/Kathmandu"}
NOTHING_LEFT = """
SELECT 'channel', c FROM pg_listening_channels() AS c
UNION ALL SELECT 'prepared statement', name FROM pg_prepared_statements
UNION ALL SELECT 'cursor', name FROM pg_cursors WHERE name <> ''
UNION ALL SELECT 'temporary object', relname FROM pg_class WHERE relnamespace = pg_my_temp_schema()
UNION ALL SELECT 'advisory lock', objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()
"""


class PgBouncer:
    """Lends `size` sessions per database and role."""

    def __init__(self, server: EmbeddedPostgres, mode: str, size: int = 20) -> None:
        self._program = require_program("pgbouncer", "pgbouncer")
        self.port = free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="pgtrickle-pgbouncer-"))
        self.log = self._directory / "log"
        users = self._directory / "users"
        users.write_text(f'"{ROLE}" "{ROLE_PASSWORD}"\n')
        self._config = self._directory / "pgbouncer.ini"
        self._config.write_text(
            f"[databases]\n* = host=127.0.0.1 port={server.port}\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = trust\n"
            f"auth_file = {users}\npool_mode = {mode}\ndefault_pool_size = {size}\nadmin_users = {ROLE}\n"
            "max_client_conn = 200\nquery_wait_timeout = 20\n"
        )
        for path in (self._directory, users, self._config):
            path.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str) -> str:
        return f"postgresql://{ROLE}:{ROLE_PASSWORD}@127.0.0.1:{self.port}/{database}"

    def __enter__(self) -> Self:
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([self._program, *user, str(self._config)], stdout=log, stderr=log)
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(120)
        shutil.rmtree(self._directory)


class Neighbour:
    """Sets its odd settings in each session that it is lent, and looks whether it finds them, and nothing else, the
    next time. A thread, until it is stopped."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sessions: set[int] = set()
        self.looks = 0
        self.found: list[tuple[Any, ...]] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        several: list[psycopg.Connection[Any]] = []
        try:
            while not self._stop.wait(0.01):
                several = [conn for conn in several if not conn.closed]
                several += [self._open() for _ in range(3 - len(several))]
                for conn in several:
                    try:
                        self._look(conn)
                    except (psycopg.errors.QueryCanceled, psycopg.errors.IdleInTransactionSessionTimeout):
                        pass  # by its own timeouts, on a busy machine
        except psycopg.Error as error:
            self.found.append(("the neighbour failed", str(error)))
        finally:
            for conn in several:
                conn.close()

    def _open(self) -> psycopg.Connection[Any]:
        conn: psycopg.Connection[Any] = psycopg.connect(self._dsn, autocommit=True, prepare_threshold=None)
        for name, value in ODD_PER_CLIENT.items():
            conn.execute("SELECT set_config(%s, %s, false)", (name, value))
        return conn

    def _look(self, conn: psycopg.Connection[Any]) -> None:
        with conn.transaction():
            row = conn.execute("SELECT pg_backend_pid()").fetchone()
            assert row is not None
            (pid,) = row
            self.looks += 1
            if pid not in self.sessions:
                for name, value in ODD.items():
                    conn.execute("SELECT set_config(%s, %s, false)", (name, value))
                self.sessions.add(pid)
                return
            for name, value in {**ODD, **ODD_PER_CLIENT}.items():
                row = conn.execute("SELECT current_setting(%s)", (name,)).fetchone()
                if row != (value,):
                    self.found.append((name, row))
            self.found += conn.execute(NOTHING_LEFT).fetchall()
