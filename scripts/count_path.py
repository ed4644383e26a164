"""Counts the path of one change through the code: from the tick that detects it to the tick that reads its result.

    python scripts/count_path.py                       # this checkout
    python scripts/count_path.py --src OLD/src         # another one, by the same rule

One process runs a scheduler, the dispatcher and a worker on an embedded PostgreSQL and Spark. A profiler records the
calls between functions of pgtrickle while one INSERT is refreshed, after two others have filled all caches.

The path is, for each thread, the sequence of functions in the order of their first call; a function that is called
again adds nothing, and one that is also called while nothing changes (polling, status, clean-up) is not part of it.
Functions without a name of their own (lambdas, comprehensions) are part of their caller. A step from one function of
the path to the next *crosses* packages when the two are in different top-level packages. Packages that every stage uses
and that decide nothing about the change are not part of the path: db, model, ipc (formerly memory), telemetry,
tracing, settings, errors.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

SHARED = {"db", "model", "ipc", "memory", "telemetry", "tracing", "settings", "errors"}
# Modules of older checkouts that are in a shared package today.
MOVED = {"runtime.channel", "runtime.pipelinelink", "runtime.bell"}


class Recorder:
    """The first call of each function of pgtrickle, in order, from all threads."""

    def __init__(self, root: Path) -> None:
        self._root = str(root / "pgtrickle") + "/"
        self._seen: set[tuple[str, str]] = set()
        self.path: dict[int, list[tuple[str, str]]] = {}  # by thread
        self.edges: set[tuple[str, str]] = set()
        self.is_on = self.is_quiet = False

    def profile(self, frame: FrameType, kind: str, _argument: object) -> None:
        if not (self.is_on or self.is_quiet) or kind != "call":
            return
        step = self._step(frame)
        if step is None:
            return
        if self.is_quiet:
            self._seen.add(step)
            return
        caller, above = frame.f_back, None
        while caller is not None and (above := self._step(caller)) is None:
            caller = caller.f_back
        if above is not None:
            self.edges.add((above[0], step[0]))
        if step not in self._seen:
            self._seen.add(step)
            self.path.setdefault(threading.get_ident(), []).append(step)

    def _step(self, frame: FrameType) -> tuple[str, str] | None:
        code = frame.f_code
        if not code.co_filename.startswith(self._root) or code.co_name.startswith("<"):
            return None
        module = code.co_filename[len(self._root) :].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if module.split(".")[0] in SHARED or module in MOVED:
            return None
        return module, code.co_qualname if hasattr(code, "co_qualname") else code.co_name


def counted(recorder: Recorder) -> dict[str, Any]:
    paths = [[module for module, _ in path] for path in recorder.path.values()]
    modules = {module for path in paths for module in path}
    steps = [step for path in paths for step in itertools.pairwise(map(package, path))]
    crossings = [(a, b) for a, b in steps if a != b]
    across = {(package(a), package(b)) for a, b in recorder.edges if package(a) != package(b)}
    return {
        "functions": sum(map(len, paths)),
        "threads": len(paths),
        "modules": len(modules),
        "packages": len({package(module) for module in modules}),
        "crossings": len(crossings),
        "returns": dict(collections.Counter(b for _, b in crossings).most_common()),
        "module_edges": sum(a != b for a, b in recorder.edges),
        "module_edges_across_packages": sum(package(a) != package(b) for a, b in recorder.edges),
        "package_edges": sorted(f"{a} -> {b}" for a, b in across),
    }


def package(module: str) -> str:
    return module.split(".")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--path", action="store_true", help="print the path itself")
    arguments = parser.parse_args()
    sys.path.insert(0, str(arguments.src.resolve()))
    recorder = Recorder(arguments.src.resolve())
    threading.setprofile(recorder.profile)
    sys.setprofile(recorder.profile)
    run(recorder)
    sys.setprofile(None)
    if arguments.path:
        for number, path in enumerate(recorder.path.values()):
            for module, name in path:
                print(f"{number} {module:40} {name}")
    print(json.dumps(counted(recorder)))


def run(recorder: Recorder) -> None:
    import psycopg

    parts = _parts()
    with parts["postgres"].create(durable=False) as server, tempfile.TemporaryDirectory() as directory:
        dsn = server.dsn()
        with psycopg.connect(dsn, autocommit=True) as user, _spark(parts) as url:
            with parts["connect"](dsn, role="path", autocommit=True) as connection:
                parts["install"](connection)
            user.execute("CREATE TABLE t (k int, v int); INSERT INTO t VALUES (1, 1)")
            query = "SELECT k, count(*) AS n, sum(v) AS total FROM t GROUP BY k"
            user.execute("SELECT pgtrickle.create_stream_table('s', %s, 'calculated')", (query,))
            stop = threading.Event()
            memory = parts["memory"](Path(directory) / "memory", create=True)
            engine = parts["engine"](lambda: url)
            dispatcher = parts["dispatcher"](parts["settings"](), engine, memory, stop)
            socket, key = Path(directory) / "socket", b"key"
            dispatcher.listen(parts["listen"](socket, key))
            thread = threading.Thread(target=dispatcher.run, args=(5.0,))
            thread.start()
            try:
                link = parts["link"](socket, key, stop)
                with parts["connect"](dsn, role="scheduler", autocommit=True) as connection:
                    scheduler = parts["scheduler"](connection, "postgres", dsn, parts["sources"](), link)

                    def until(total: int) -> None:
                        deadline = time.monotonic() + 300
                        while user.execute("SELECT sum(total) FROM s").fetchone() != (total,):
                            scheduler.tick()
                            time.sleep(0.05)
                            assert time.monotonic() < deadline
                        while scheduler.in_flight:
                            scheduler.listen()
                            time.sleep(0.01)

                    until(1)
                    for number in (2, 3):
                        user.execute("INSERT INTO t VALUES (1, 1)")
                        until(number)
                    recorder.is_quiet = True
                    for _ in range(50):
                        scheduler.tick()
                        scheduler.listen()
                        time.sleep(0.05)
                    recorder.is_quiet = False
                    user.execute("INSERT INTO t VALUES (1, 1)")
                    recorder.is_on = True
                    until(4)
                    recorder.is_on = False
            finally:
                stop.set()
                dispatcher.wake()
                thread.join()
                engine.close()


@contextmanager
def _spark(parts: dict[str, Any]) -> Iterator[str]:
    server = parts["spark"].start(parts["settings"](spark_driver_memory_mb=1024))
    try:
        server.wait_ready(300)
        yield server.url
    finally:
        server.stop()


def _parts() -> dict[str, Any]:
    """Classes by their names of today, or by those of the checkout before the packages were split."""
    from pgtrickle.db.connect import connect
    from pgtrickle.db.install import install
    from pgtrickle.settings import Settings, Sources

    parts: dict[str, Any] = {"connect": connect, "install": install, "settings": Settings, "sources": Sources}
    try:
        from pgtrickle.dispatch.dispatcher import Dispatcher
        from pgtrickle.ipc.channel import listen
        from pgtrickle.ipc.fleet_memory import FleetMemory
        from pgtrickle.ipc.pipeline_link import SocketPipelineLink as PipelineLink
        from pgtrickle.pipeline.engine.spark import SparkEngine
        from pgtrickle.scheduler.tick import DatabaseScheduler
        from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
        from pgtrickle.servers.spark_server import SparkServer
    except ImportError:
        from pgtrickle.memory.fleet import FleetMemory  # type: ignore[no-redef, import-not-found]
        from pgtrickle.pipeline.spark import SparkEngine  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.channel import listen  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.dispatcher import Dispatcher  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.embedded import EmbeddedPostgres  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.pipelinelink import PipelineLink  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.scheduling import Scheduling as DatabaseScheduler  # type: ignore[no-redef, import-not-found]
        from pgtrickle.runtime.sparkserver import SparkServer  # type: ignore[no-redef, import-not-found]
    parts |= {"dispatcher": Dispatcher, "listen": listen, "memory": FleetMemory, "link": PipelineLink}
    return parts | {
        "engine": SparkEngine,
        "scheduler": DatabaseScheduler,
        "postgres": EmbeddedPostgres,
        "spark": SparkServer,
    }


if __name__ == "__main__":
    main()
