"""An S3 server on loopback (moto), behind a proxy that can be slow, stop answering, and record what it forwards."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

SECRET = "wJalrXUtnFEMI-not-to-be-found"
KEY = "AKIA-not-to-be-found"
CONTROL = "/proxy-control"
_SIGNED = (
    "AWS4-HMAC-SHA256 Credential=t/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"  # moto reads
)


class S3:
    """`behind`: the port of the S3 server, `port`: that of the proxy, which is a process of its own: clients that wait
    for an answer while they hold Python's lock would stop a proxy in this one."""

    def __init__(self, behind: int, port: int) -> None:
        self._behind = behind
        self._port = port

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._port}",
        }

    def behave(self, *, delay_s: float = 0.0, is_down: bool = False) -> None:
        """`delay_s`: of each request; `is_down`: connections are closed without an answer."""
        self._ask("POST", CONTROL, json.dumps({"delay_s": delay_s, "is_down": is_down}).encode(), self._port)

    def requests(self) -> list[Request]:
        """Those since the last call."""
        return [Request(*each) for each in json.loads(self._ask("GET", CONTROL, None, self._port)[1])]

    def create_bucket(self, name: str) -> None:
        assert self._ask("PUT", f"/{name}")[0] == 200

    def keys(self, bucket: str) -> list[str]:
        text = self._ask("GET", f"/{bucket}?list-type=2&max-keys=1000")[1].decode()
        return [part.partition("</Key>")[0] for part in text.split("<Key>")[1:]]

    def get(self, bucket: str, key: str) -> bytes:
        status, content = self._ask("GET", f"/{bucket}/{key}")
        assert status == 200, content
        return content

    def put(self, bucket: str, key: str, content: bytes) -> None:
        assert self._ask("PUT", f"/{bucket}/{key}", content)[0] == 200

    def delete(self, bucket: str, key: str) -> None:
        assert self._ask("DELETE", f"/{bucket}/{key}")[0] in (200, 204)

    def empty(self, bucket: str) -> None:
        for key in self.keys(bucket):
            self.delete(bucket, key)

    def _ask(self, method: str, path: str, body: bytes | None = None, port: int | None = None) -> tuple[int, bytes]:
        """Around the proxy, unless `port` is given."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self._behind, timeout=60)
        try:
            connection.request(method, path, body, {"Authorization": _SIGNED})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@dataclass(frozen=True)
class Request:
    """What the proxy got: `status` of the answer, 0 while it is down; `range`: requested bytes."""

    method: str
    path: str
    if_none_match: str | None
    range: str | None
    status: int


class _Proxy(BaseHTTPRequestHandler):
    """Forwards to the S3 server; runs in a process of its own."""

    protocol_version = "HTTP/1.1"
    behind = 0
    delay_s = 0.0
    is_down = False
    seen: ClassVar[list[list[Any]]] = []

    def _forward(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        if self.path == CONTROL:
            self._control(body)
            return
        request = [self.command, self.path, self.headers.get("If-None-Match"), self.headers.get("Range"), 0]
        _Proxy.seen.append(request)
        if _Proxy.is_down:
            self.close_connection = True
            return
        time.sleep(_Proxy.delay_s)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        connection = http.client.HTTPConnection("127.0.0.1", _Proxy.behind, timeout=60)
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        request[-1] = answer.status
        content = answer.read()
        own = ("content-length", "connection", "transfer-encoding", "date", "server")
        known = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(answer.status, content, known, [h for h in answer.getheaders() if h[0].lower() not in own])
        connection.close()

    def _control(self, body: bytes | None) -> None:
        content = b""
        if body is None:
            content = json.dumps(_Proxy.seen).encode()
            _Proxy.seen.clear()
        else:
            given = json.loads(body)
            _Proxy.delay_s, _Proxy.is_down = given["delay_s"], given["is_down"]
        self._answer(200, content, None, [])

    def _answer(self, status: int, content: bytes, length: str | None, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def s3_server() -> Iterator[S3]:
    behind, port = _free_port(), _free_port()
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(behind)]
    proxy = [sys.executable, __file__, str(port), str(behind)]
    processes = []
    try:
        for command in (moto, proxy):
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for number, process in zip((behind, port), processes, strict=True):
            _wait(number, process)
        yield S3(behind, port)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert process.poll() is None, "a server has ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("a server does not answer")


if __name__ == "__main__":
    _Proxy.behind = int(sys.argv[2])
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Proxy)
    server.daemon_threads = True
    server.serve_forever()
