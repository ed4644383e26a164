"""kill -9 of whatever works on a replica, while a writer changes the table: the process that advances it, a Python
worker of an executor, Spark itself. After each kill the replica has exactly the rows of the table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import psycopg

from pgtrickle.errors import PgtrickleError
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaVersion
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.spark.replicated import Replicated

PATIENCE_S = 300.0
PROCESS, WORKER, SPARK = "process", "worker", "spark"

# Imports once, then forks a process for each line that it reads (the address of Spark), which advances until it is
# killed.
ADVANCING = """
import os, sys, time
from pathlib import Path

import deltalake, pandas, pyarrow.dataset, pyarrow.parquet, pyspark.sql.connect.session
from pgtrickle.db.connect import connect
from pgtrickle.errors import PgtrickleError
from pgtrickle.pipeline.engine import columnar
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaStore, layers

dsn, root, relid, layers.LEAST_ROWS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
layers.MOST_LAYERS = 3

def advance(url):
    store, conn = ReplicaStore(root, SparkEngine(lambda: url)), connect(dsn, role="replica", autocommit=True)
    while True:
        try:
            store.advance(conn, relid)
        except PgtrickleError as error:
            print(error.message, file=sys.stderr, flush=True)
            time.sleep(0.2)

for line in sys.stdin:
    child = os.fork()
    if not child:
        sys.stdin.close()
        advance(line.strip())
    print(child, flush=True)
    os.waitpid(child, 0)
"""


class Killer:
    """A table with a replica, its writer, and the process that advances it."""

    def __init__(self, database: Database, root: Path, server: SparkServer, seed: int, *, least_rows: int) -> None:
        self.random = Random(seed)
        self.server = server
        self.killed: Counter[str] = Counter()
        self.versions: set[tuple[str, int]] = set()
        self.replicated = Replicated(database, SparkEngine(lambda: self.server.url), root)
        self.replicated.sql("CREATE TABLE t (id int PRIMARY KEY, kind int, note text)")
        self.replicated.sql("INSERT INTO t SELECT i, i % 7, 'n' || i FROM generate_series(1, 1000) AS i")
        version = self.replicated.ensure()
        arguments = [database.dsn, str(root), str(version.id.relid), str(least_rows)]
        self._forker = subprocess.Popen(
            [sys.executable, "-c", ADVANCING, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._child = 0
        self._may_write, self._ends = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._writer = threading.Thread(target=self._write, args=(database.dsn, seed), daemon=True)
        self._writer.start()

    def close(self) -> None:
        self._ends.set()
        self._may_write.set()
        self._writer.join()
        self._kill_process()
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None
        self._forker.stdin.close()
        self._forker.wait()
        self._forker.stdout.close()
        self.replicated.engine.close()
        self.replicated.conn.close()

    def _write(self, dsn: str, seed: int) -> None:
        random = Random(-seed)
        with psycopg.connect(dsn, autocommit=True) as conn:
            while not self._ends.is_set():
                if not self._may_write.is_set():
                    self._idle.set()
                    self._may_write.wait()
                    self._idle.clear()
                    continue
                low, new = random.randint(1, 950), random.randint(2000, 1_000_000)
                conn.execute(f"UPDATE t SET note = 'w{new}' WHERE id BETWEEN {low} AND {low + random.randint(0, 30)}")
                conn.execute(f"INSERT INTO t VALUES ({new}, 0, 'new') ON CONFLICT (id) DO UPDATE SET note = 'again'")
                conn.execute("DELETE FROM t WHERE id = (SELECT max(id) FROM t WHERE id > 2000)")
                time.sleep(0.02)

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._idle.clear()
        self._may_write.set()
        yield
        self._may_write.clear()
        assert self._idle.wait(PATIENCE_S)

    def kill(self, kind: str, longest_s: float) -> None:
        """Starts to advance, kills, and compares."""
        if kind == WORKER:  # only the building of a replica needs them
            Path(self._version().directory, self._version().files[0].name).unlink()
        with self.writing():
            self._start()
            if kind == WORKER:
                self._kill_worker()
            else:
                time.sleep(self.random.uniform(0, longest_s))
                self._kill_process() if kind == PROCESS else self._kill_spark()
        self._kill_process()
        self.killed[kind] += 1
        self.check()

    def check(self) -> None:
        version = self._version()
        self.versions.add((version.generation, version.version))
        self.replicated.check(version, verify=False)

    def _version(self) -> ReplicaVersion:
        """As the next process finds it. Sessions of a killed one may hold the lock for a moment."""
        limit = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.replicated.ensure()
            except PgtrickleError:
                if time.monotonic() > limit:
                    raise
                time.sleep(0.1)

    def _start(self) -> None:
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None
        self._forker.stdin.write(self.server.url + "\n")
        self._forker.stdin.flush()
        self._child = int(self._forker.stdout.readline())

    def _kill_process(self) -> None:
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            self._child = 0

    def _kill_worker(self) -> None:
        limit = time.monotonic() + PATIENCE_S
        while not (found := _workers(self.server.pid)):
            assert time.monotonic() < limit
        os.kill(self.random.choice(found), signal.SIGKILL)

    def _kill_spark(self) -> None:
        self.server.kill()
        self.server.stop()
        self.server = SparkServer.start(Settings(spark_driver_memory_mb=1024))
        self.server.wait_ready(PATIENCE_S)


def _workers(spark: int) -> list[int]:
    """Python processes below Spark's."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, level = [], [spark]
    while level:
        level = [child for parent in level for child in parents.get(parent, [])]
        found += level
    return found
