"""The web UI over databases of a test, without `pgtrickle run`: served in a thread, asked as a browser would."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from pgtrickle.ipc.fleet_memory import FleetMemory, ProcessState
from pgtrickle.observe.database import DatabaseAddress
from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.settings import Settings, Sources
from pgtrickle.web.listen import listen
from pgtrickle.web.server import serve
from tests.conftest import Database

TOKEN = "a token of the tests"
HTML = {"accept": "text/html"}
JSON = {"accept": "application/json"}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Site:
    """A server and its address. `ask` sends what it is given, unchanged."""

    def __init__(self, port: int, observer: FleetObserver, memory: FleetMemory) -> None:
        self.port = port
        self.observer = observer
        self.memory = memory

    def ask(
        self, path: str, method: str = "GET", headers: dict[str, str] | None = None, form: dict[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = None if form is None else urlencode(form)
        connection.request(method, path, body, headers or HTML)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, text)

    def read(self, path: str, **headers: str) -> Any:
        """The JSON version of a page."""
        answer = self.ask(path, headers=JSON | headers)
        assert answer.status == 200, answer
        return answer.json


@contextmanager
def site(
    databases: Sequence[Database], directory: Path, *, token: str = "", address: str = "127.0.0.1:0"
) -> Iterator[Site]:
    memory = FleetMemory(directory / "memory", create=True)
    memory.write_processes([ProcessState("launcher", 1, "ACTIVE", 0.0)])
    observer = FleetObserver(memory, Sources())
    observer.set_databases([DatabaseAddress(d.name, d.name, "here", d.dsn) for d in databases])
    stop = threading.Event()
    with listen(address, token) as listener:
        settings = Settings(http=address, http_token=token)
        thread = threading.Thread(target=serve, args=(observer, settings, listener, stop))
        thread.start()
        try:
            yield Site(listener.getsockname()[1], observer, memory)
        finally:
            stop.set()
            thread.join(30)
            observer.close()
