"""The pipeline process: dispatcher, workers, Spark client."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from pgtrickle import __version__
from pgtrickle.errors import TransientError
from pgtrickle.ipc.channel import listen
from pgtrickle.ipc.fleet_memory import FleetMemory
from pgtrickle.ipc.liveness import Heartbeat
from pgtrickle.process.parent import end_with_parent, stop_on_signals
from pgtrickle.servers.spark_address import RemoteSparkAddress, SparkUrlWaiter
from pgtrickle.settings import Settings
from pgtrickle.telemetry import SPARK_COLD, event, set_up_logging
from pgtrickle.tracing import start as start_traces

log = logging.getLogger(__name__)

WARM_UP_JOBS = 20
# To wait for a Spark that was lost, while a snapshot is held; then the work is returned to the queue.
RESTART_SECONDS = 5.0
DRAIN_SECONDS = 10.0  # for running refreshes; what is not committed then is repeated by the next run


@dataclass(frozen=True, slots=True)
class PipelineTask:
    """Arguments from the launcher. `spark`: receives the address of Spark when it changes."""

    directory: Path
    authkey: bytes
    settings: Settings
    spark: Connection
    servers: tuple[str, ...] = ()


def main(task: PipelineTask) -> None:
    from pgtrickle.dispatch.dispatcher import Dispatcher
    from pgtrickle.origin.sessions import OriginSessions
    from pgtrickle.pipeline.engine.spark import SparkEngine

    set_up_logging(task.settings.log_level, task.settings.log_format)
    end_traces = start_traces(task.settings.otlp_endpoint, __version__)
    stop = threading.Event()
    end_with_parent()

    remote = SparkUrlWaiter(
        RemoteSparkAddress(task.spark), float(task.settings.spark_start_timeout_s), RESTART_SECONDS, stop
    )
    engine = SparkEngine(remote)
    memory = FleetMemory(memory_path(task.directory))
    dispatcher = Dispatcher(task.settings, engine, memory, stop, OriginSessions(task.servers))
    dispatcher.beat = Heartbeat(heartbeat_path(task.directory)).beat
    stop_on_signals(stop, dispatcher.wake)
    dispatcher.listen(listen(socket_path(task.directory), task.authkey))
    threading.Thread(target=_warm_up, args=(engine, stop), name="warm-up", daemon=True).start()
    try:
        dispatcher.run(DRAIN_SECONDS)
    finally:
        engine.close()
        end_traces()


def socket_path(directory: Path) -> Path:
    return directory / "pipeline.sock"


def heartbeat_path(directory: Path) -> Path:
    return directory / "pipeline.beat"


def memory_path(directory: Path) -> Path:
    return directory / "memory"


def _warm_up(engine: object, stop: threading.Event) -> None:
    from pgtrickle.pipeline.engine.spark import SparkEngine

    assert isinstance(engine, SparkEngine)
    try:
        for _ in engine.warm_up(WARM_UP_JOBS):
            if stop.is_set():
                return
    except TransientError as error:
        log.warning("Spark could not be warmed up", extra=event(SPARK_COLD, detail=error.message))
    except RuntimeError:  # the engine was closed during the warm-up
        if not stop.is_set():
            raise
