"""`pgtrickle demo`: the product on its own PostgreSQL and Spark, with a shop workload.

What runs is what a user would run: `pgtrickle install`, stream tables from SQL, and `pgtrickle run` in a process of
its own. At the end the workload stops and every stream table is compared with its query as PostgreSQL evaluates it.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import connect, translated
from pgtrickle.demo.view import Rates, TableState, headline, lines, live, read_states
from pgtrickle.errors import ConfigError, TransientError
from pgtrickle.maintain.report import verify_lines
from pgtrickle.observe.loads import read_loads
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import GuardedProcess, private_directory
from pgtrickle.servers.spark_server import SparkServer
from pgtrickle.settings import Settings
from pgtrickle.web.listen import DEFAULT_PORT, parse_address

if TYPE_CHECKING:
    from rich.console import Console

    from pgtrickle.db.connect import Connection
    from pgtrickle.demo.workload import Workload

ROLE = DATABASE = "shop"
UPDATE_S = 0.5
PLAIN_UPDATE_S = 5.0
LOAD_S = 400.0
PAUSE_S = 0.03

_SUMMARY = """
SELECT lower(action), engine, count(*),
       percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM end_time - start_time)) * 1000
FROM pgtrickle.pgt_refresh_history
WHERE status = 'COMPLETED' AND action <> 'NO_DATA'
GROUP BY action, engine
ORDER BY 3 DESC
"""


def example(name: str) -> str:
    """The text of a file of examples/shop."""
    return files("pgtrickle.demo").joinpath("examples", "shop", name).read_text(encoding="utf-8")


def run_demo(settings: Settings, seconds: int | None, http: str | None = None) -> int:
    """Returns the exit status: 0 when every stream table equals its query at the end. `http`: where the web UI is."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    stop = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(_signals(stop))
        server, spark_url = _start_servers(settings, console, stack, stop)
        dsn = _prepare(server, console)
        url, address = _web_address(http)
        token = secrets.token_hex(8)
        runner = stack.enter_context(_runner(dsn, spark_url, address, token))
        console.print(f"Watch it in a browser:  {url}  (token for changes: {token})")
        console.print(f"Connect with:  {_short(server.program('psql'))} {dsn}")
        console.print("        e.g.   SELECT * FROM sales_by_region ORDER BY revenue DESC;")
        return _watch(dsn, runner, console, seconds, stop)


def _short(path: Path) -> Path:
    """The path relative to the current directory, if that is shorter."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


@contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """The first Ctrl-C ends the workload and starts the verification; the second one aborts."""

    def on_signal(_number: int, _frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _start_servers(
    settings: Settings, console: Console, stack: ExitStack, stop: threading.Event
) -> tuple[EmbeddedPostgres, str]:
    """Starts PostgreSQL and Spark at the same time; Spark takes seconds, PostgreSQL less than one."""
    began = time.monotonic()
    with _Progress(console) as progress, ThreadPoolExecutor(1, "postgres") as pool:
        spark = None
        if not settings.spark_remote:
            spark = SparkServer.start(settings, warn=lambda line: console.print(f"Note: {line}"))
            stack.callback(spark.stop)
        postgres = pool.submit(_start_postgres)
        progress.begin("PostgreSQL 18")
        server = postgres.result()
        stack.callback(server.close)
        progress.end("PostgreSQL 18 is ready", time.monotonic() - began)
        if spark is None:
            return server, settings.spark_remote
        progress.begin("Spark")

        def tick(waited: float) -> None:
            if stop.is_set():
                raise KeyboardInterrupt
            progress.tick("Spark", waited)

        spark.wait_ready(None, tick)
        progress.end("Spark is ready", time.monotonic() - began)
        return server, spark.url


def _start_postgres() -> EmbeddedPostgres:
    server = EmbeddedPostgres.create(durable=False, settings={"max_prepared_transactions": "10"})
    try:
        server.start()
    except BaseException:
        server.close()
        raise
    return server


class _Progress:
    """A spinner on a terminal, a line per finished step elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Any = console.status("Starting") if console.is_terminal else None

    def __enter__(self) -> _Progress:
        if self._status:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status:
            self._status.stop()

    def begin(self, what: str) -> None:
        if self._status:
            self._status.update(f"Starting {what} ...")

    def tick(self, what: str, waited: float) -> None:
        if self._status:
            self._status.update(f"Starting {what} ... {waited:.0f} s")

    def end(self, what: str, seconds: float) -> None:
        self._console.print(f"{what} after {seconds:.1f} s")


def _prepare(server: EmbeddedPostgres, console: Console) -> str:
    """An ordinary role owns the database: no superuser is needed for anything that follows."""
    from pgtrickle.db.install import install

    password = secrets.token_hex(8)
    with connect(server.dsn(), role="demo", autocommit=True, as_service=False) as conn, translated():
        conn.execute(f"CREATE ROLE {ROLE} LOGIN PASSWORD '{password}'")
        conn.execute(f"CREATE DATABASE {DATABASE} OWNER {ROLE}")
    dsn = server.dsn(DATABASE, user=ROLE, password=password)
    with connect(dsn, role="demo", autocommit=True, as_service=False) as conn, translated():
        conn.execute("SET search_path = public")
        for name in ("schema.sql", "data.sql"):
            conn.execute(example(name).encode())
        install(conn)
        conn.execute(example("stream_tables.sql").encode())
    console.print("A shop with 2,000 customers, 20,000 orders and 50,000 order items; six stream tables over it")
    return dsn


def _add_spark_table(dsn: str, console: Console) -> None:
    """Adds the stream table on Spark after the first loads, which then do not wait seconds for its replicas."""
    with connect(dsn, role="demo", autocommit=True, as_service=False) as conn, translated():
        conn.execute("SET search_path = public")
        conn.execute(example("heavy.sql").encode())
    console.print("A seventh one, bought_together, is computed on Spark from replicas, which are built now")


def _web_address(http: str | None) -> tuple[str, str]:
    """The URL of the web UI, and host:port: that of --http; otherwise the default port, or a free one."""
    host, port = parse_address(http or f"127.0.0.1:{DEFAULT_PORT}")
    if http is None:
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
            except OSError:
                with socket.socket() as free:
                    free.bind((host, 0))
                    port = free.getsockname()[1]
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"http://{where}/", where


@contextmanager
def _runner(dsn: str, spark_url: str, address: str, token: str) -> Iterator[GuardedProcess]:
    """`pgtrickle run`, as a user would start it. Secrets go through the environment."""
    directory = private_directory("pgtrickle-demo-", need_mib=50)
    log = directory / "run.log"
    environ = {k: v for k, v in os.environ.items() if not k.startswith("PGTRICKLE_")}
    environ["PGTRICKLE_REPLICA_ROOT"] = str(directory / "replicas")
    process = GuardedProcess(
        [sys.executable, "-m", "pgtrickle.cli", "run"],
        log=log,
        env={
            **environ,
            "PGTRICKLE_SERVER": dsn,
            "PGTRICKLE_SPARK_REMOTE": spark_url,
            "PGTRICKLE_HTTP": address,
            "PGTRICKLE_HTTP_TOKEN": token,
            "PYTHONUNBUFFERED": "1",
        },
        signals=(("SIGTERM", 15.0),),
        remove=(directory,),
    )
    try:
        yield process
    finally:
        process.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _watch(dsn: str, runner: GuardedProcess, console: Console, seconds: int | None, stop: threading.Event) -> int:
    from pgtrickle.demo.workload import Workload

    workload = Workload(dsn, rng=random.Random(7), pause_s=PAUSE_S)  # noqa: S311  -- the same shop every time
    with connect(dsn, role="view", autocommit=True) as conn:
        _wait_until_loaded(conn, runner, console, stop)
        workload.start()
        try:
            _add_spark_table(dsn, console)
            _show(conn, workload, runner, console, seconds, stop)
        finally:
            workload.stop()
        if not all(state.populated for state in read_states(conn)):
            stop.clear()
            _wait_until_loaded(conn, runner, console, stop)
    if workload.tally.error:
        raise ConfigError(f"the demo's workload failed: {workload.tally.error}")
    status = _verify(dsn, console)
    for line in _problems(runner)[-5:]:
        console.print(f"  log of pgtrickle run: {line}", markup=False)
    return status


def _wait_until_loaded(conn: Connection, runner: GuardedProcess, console: Console, stop: threading.Event) -> None:
    began = time.monotonic()
    with _Progress(console) as progress:
        while True:
            states = read_states(conn)
            if states and all(state.populated for state in states):
                progress.end("Stream tables are loaded", time.monotonic() - began)
                return
            _require_running(runner)
            failed = next((state for state in states if state.status in ("ERROR", "SUSPENDED")), None)
            if failed is not None:
                raise ConfigError(f"stream table {failed.name} could not be loaded: {failed.error}")
            if time.monotonic() - began > LOAD_S:
                raise TransientError(
                    f"the stream tables were not loaded after {LOAD_S:.0f} s",
                    hint=next((f"pgtrickle run reports: {line}" for line in reversed(_problems(runner))), None),
                )
            loads = "; ".join(f"{load.name}: {load.text()}" for load in read_loads(conn))
            progress.tick(f"the first load{f' ({loads})' if loads else ''}", time.monotonic() - began)
            if stop.wait(0.1):
                raise KeyboardInterrupt


def _show(
    conn: Connection,
    workload: Workload,
    runner: GuardedProcess,
    console: Console,
    seconds: int | None,
    stop: threading.Event,
) -> None:
    """Shows the stream tables until the time is over, Ctrl-C, or a process ends unexpectedly."""
    began = time.monotonic()
    rates = Rates()
    rates.update(began, read_states(conn))

    def read() -> tuple[list[TableState], dict[str, float], str]:
        _require_running(runner)
        states = read_states(conn)
        now = time.monotonic()
        return states, rates.update(now, states), headline(workload.tally, now - began)

    def is_over() -> bool:
        return workload.tally.error is not None or (seconds is not None and time.monotonic() - began >= seconds)

    if not console.is_terminal:
        while not is_over():
            if stop.wait(min(PLAIN_UPDATE_S, seconds or PLAIN_UPDATE_S)):
                return
            states, speed, head = read()
            for line in (head, *lines(states, speed)):
                console.print(line)
        return
    from rich.live import Live

    foot = (
        "Ctrl-C stops the workload and verifies every stream table"
        if seconds is None
        else f"runs for {seconds} s; Ctrl-C stops it"
    )
    with Live(console=console, refresh_per_second=4) as display:
        while not is_over():
            states, speed, head = read()
            display.update(live(states, speed, head, foot))
            if stop.wait(UPDATE_S):
                return


def _require_running(runner: GuardedProcess) -> None:
    if not runner.alive():
        text = runner.log.read_text(errors="replace").strip().splitlines()
        raise ConfigError(f"pgtrickle run ended: {text[-1] if text else 'no output'}")


def _problems(runner: GuardedProcess) -> list[str]:
    """Warnings and errors in the log; a healthy run has none."""
    text = runner.log.read_text(errors="replace").splitlines()
    return [line for line in text if " WARNING " in line or " ERROR " in line or "Error:" in line]


def _verify(dsn: str, console: Console) -> int:
    """Verifies all stream tables while `run` is active: verification waits for pending changes, or excludes them."""
    from pgtrickle.maintain.verify import verify_tables

    console.print(
        "The workload has stopped. Comparing all rows of every stream table with its query, in both directions:"
    )
    results = verify_tables(dsn, None)
    with connect(dsn, role="view", autocommit=True) as conn, translated():
        for action, engine, count, median in conn.execute(_SUMMARY):
            console.print(f"  {count} {action} refreshes on {engine}, median {median:.0f} ms")
    for line in verify_lines(results):
        console.print(f"  {line}")
    return 0 if results and all(result.ok for result in results) else 1
