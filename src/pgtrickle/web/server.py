"""Serves the application until the stop event."""

from __future__ import annotations

import logging
import socket
import threading

import uvicorn

from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.settings import Settings
from pgtrickle.web.app import Options, create_app
from pgtrickle.web.listen import is_loopback

DRAIN_SECONDS = 1  # for open requests; live updates never end by themselves
MOST_CONNECTIONS = 500


def serve(observer: FleetObserver, settings: Settings, listener: socket.socket, stop: threading.Event) -> None:
    options = Options(settings.http_token, is_loopback(listener), settings.metrics_max_tables)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it logs a warning for each request that is not HTTP
    config = uvicorn.Config(
        create_app(observer, options),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
        limit_concurrency=MOST_CONNECTIONS,
    )
    server = uvicorn.Server(config)
    # Not in the main thread, where uvicorn would install signal handlers.
    worker = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
    worker.start()
    while worker.is_alive() and not stop.wait(0.5):
        pass
    server.should_exit = True
    worker.join(2 * DRAIN_SECONDS)
