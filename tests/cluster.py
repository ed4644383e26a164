"""A standalone Spark cluster on this machine, of the parts that came as wheels: a master and workers."""

from __future__ import annotations

import importlib.util
import os
import signal
import time
from pathlib import Path

from pgtrickle.servers.java import find_java
from pgtrickle.servers.server_process import GuardedProcess, free_port
from pgtrickle.servers.spark_server import OPENS, SCALA

LIMIT = 300  # seconds; detects a hang
# The wheel's Java lacks a module that Spark's command lines name, and needs two options that they do not.
JAVA = """#!/bin/sh
for each in "$@"; do
    shift
    [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec {java} {options} "$@"
"""


def java_home(directory: Path) -> Path:
    """A home of Java for executors, which Spark starts by itself."""
    java = find_java("", {}, lambda _line: None)
    options = "-Dio.netty.noUnsafe=false" + (" --sun-misc-unsafe-memory-access=allow" if java.version >= 23 else "")
    (directory / "bin").mkdir(parents=True, exist_ok=True)
    (directory / "release").write_text(f'JAVA_VERSION="{java.version}"\n')
    program = directory / "bin" / "java"
    program.write_text(JAVA.format(java=java.path, options=options))
    program.chmod(0o755)
    return directory


def bare_python(directory: Path) -> Path:
    """A Python that has the packages that pgtrickle needs, and not pgtrickle itself."""
    import sys
    import sysconfig

    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "python"
    site = sysconfig.get_path("purelib")
    # Without site no .pth file is read, through which a development installation is found.
    text = f"""#!/bin/sh
export PYTHONPATH="{site}${{PYTHONPATH:+:$PYTHONPATH}}"
exec {sys.executable} -S "$@"
"""
    program.write_text(text)
    program.chmod(0o755)
    return program


class StandaloneCluster:
    """`url` is a master for `spark_master`. Workers have one core each."""

    def __init__(self, directory: Path, workers: int = 2, *, memory: str = "1g") -> None:
        self._directory = directory
        self._memory = memory
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        self._spark = Path(spec.origin).parent
        self._java = java_home(directory / "java")
        self._port = free_port()
        self.url = f"spark://127.0.0.1:{self._port}"
        address = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", "0"]
        self._master = self._start("master", "master.Master", address)
        self.workers = [self._worker(i) for i in range(workers)]

    def _worker(self, number: int) -> GuardedProcess:
        place = ["--cores", "1", "--memory", self._memory, "--work-dir", str(self._directory / f"work{number}")]
        rest = ["--host", "127.0.0.1", "--webui-port", "0", self.url]
        return self._start(f"worker{number}", "worker.Worker", [*place, *rest])

    def _start(self, name: str, kind: str, arguments: list[str]) -> GuardedProcess:
        command = [
            str(self._java / "bin" / "java"),
            *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS),
            "-Xmx256m",
            "-cp",
            f"{self._spark}/jars/*",
            f"org.apache.spark.deploy.{kind}",
            *arguments,
        ]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        env = {
            **kept,
            "JAVA_HOME": str(self._java),
            "SPARK_HOME": str(self._spark),
            "SPARK_SCALA_VERSION": SCALA,  # set by Spark's scripts
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_HOSTNAME": "localhost",
        }
        log = self._directory / f"{name}.log"
        return GuardedProcess(command, log=log, env=env, signals=(("SIGTERM", 2.0),), cwd=self._directory)

    def wait_ready(self) -> None:
        """All workers have registered with the master."""
        deadline = time.monotonic() + LIMIT
        while any("Successfully registered with master" not in worker.log.read_text() for worker in self.workers):
            assert time.monotonic() < deadline, [worker.log.read_text()[-2000:] for worker in self.workers]
            assert self._master.alive(), self._master.log.read_text()[-2000:]
            time.sleep(0.1)

    def executors(self, worker: GuardedProcess) -> list[int]:
        """The processes that a worker has started."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and f"\nPPid:\t{worker.pid}\n" in (entry / "status").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended
        return found

    def kill_worker(self, number: int) -> None:
        """As a machine that goes away: the worker and what it has started, at once."""
        worker = self.workers[number]
        worker.signal(signal.SIGSTOP)  # it must not start another executor in between
        for pid in self.executors(worker):
            os.kill(pid, signal.SIGKILL)
        worker.signal(signal.SIGKILL)
        worker.wait(30)

    def replace_worker(self, number: int) -> None:
        """One goes away, and another one comes."""
        self.kill_worker(number)
        self.workers[number] = self._worker(number)

    def stop(self) -> None:
        for process in (*self.workers, self._master):
            process.stop()
