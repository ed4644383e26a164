"""The product as processes: `pgtrickle run` over the databases of an embedded PostgreSQL, with a Spark beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common.harness import WARM_UP_JOBS, note
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings

NO_SPARK = "sc://127.0.0.1:1"  # nobody listens there
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Site:
    """Where runs are started."""

    postgres: EmbeddedPostgres
    spark_url: str


@contextmanager
def site(*, spark: bool = True, **more: str) -> Iterator[Site]:
    """`spark`: whether there is a Spark server; few changes need none. `more`: settings of PostgreSQL."""
    server = SparkServer.start(Settings()) if spark else None
    settings = {"shared_buffers": "512MB", "max_connections": "300", "synchronous_commit": "off", **more}
    try:
        with EmbeddedPostgres.create(durable=False, settings=settings) as postgres:
            if server is None:
                yield Site(postgres, NO_SPARK)
                return
            server.wait_ready(180)
            engine = SparkEngine(lambda: server.url)
            note(f"warming Spark up with {WARM_UP_JOBS} jobs")
            for _ in engine.warm_up(WARM_UP_JOBS):
                pass
            engine.close()
            yield Site(postgres, server.url)
    finally:
        if server is not None:
            server.stop()


class Run:
    """A `pgtrickle run` and its children."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def kinds(self) -> dict[int, str]:
        """Our processes; those of Spark and PostgreSQL are not among them."""
        found = {self.process.pid: "launcher"}
        level = [self.process.pid]
        while level:
            above = level
            level = []
            for pid, parent, command in _processes():
                if parent not in above or pid in found:
                    continue
                level.append(pid)
                if found[parent] == "fork server":
                    found[pid] = "scheduler"
                elif "forkserver" in command:
                    found[pid] = "fork server"
                elif "spawn_main" in command:
                    found[pid] = "pipeline"
                else:
                    found[pid] = "helper"
        return found

    def cpu(self) -> dict[int, float]:
        """Seconds of CPU of each process so far."""
        return {pid: seconds for pid in self.kinds() if (seconds := cpu_seconds(pid)) is not None}


@contextmanager
def run(where: Site, settings: Mapping[str, object], profile: str | None = None) -> Iterator[Run]:
    command = [sys.executable, "-m", "pgtrickle.cli", *(["--profile", profile] if profile else [])]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    command += ["run", "--server", where.postgres.dsn(), "--spark-remote", where.spark_url]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ)
        try:
            yield Run(process)
            if process.poll() is not None:
                raise SystemExit(f"pgtrickle run ended with status {process.returncode}")
        except BaseException:
            log.seek(0)
            note(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(condition: Callable[[], object], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.1)


def cpu_seconds(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def family_cpu_seconds(pid: int) -> float:
    """A process, its children, and those that have ended."""
    ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
    alive = [pid, *(child for child, parent, _ in _processes() if parent == pid)]
    return sum(map(int, ended)) / TICKS_PER_SECOND + sum(cpu_seconds(each) or 0.0 for each in alive)


def memory_mib(pid: int) -> dict[str, float]:
    """Pss, Rss and what is its own alone."""
    found: dict[str, float] = {"private": 0.0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value = line.split(":")
        mib = int(value.split()[0]) / 1024
        if name in ("Pss", "Rss"):
            found[name.lower()] = round(mib, 1)
        elif name in ("Private_Clean", "Private_Dirty"):
            found["private"] = round(found["private"] + mib, 1)
    return found


def jvm_mib(pid: int) -> dict[str, float]:
    """Resident memory of a Java process, the heap apart: with compressed pointers that is all below 32 GiB."""
    found, is_heap = {"heap": 0.0, "beside_heap": 0.0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, value = line.partition(" ")
        if not name.endswith(":"):
            is_heap = int(name.partition("-")[0], 16) < 32 << 30
        elif name == "Rss:":
            found["heap" if is_heap else "beside_heap"] += int(value.split()[0]) / 1024
    return {name: round(mib, 1) for name, mib in found.items()}


def load() -> float:
    return round(os.getloadavg()[0], 1)


def _processes() -> Iterator[tuple[int, int, str]]:
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            yield int(path.name), parent, (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
