"""The listening socket of the web UI, opened before other processes start: an invalid address is then an error."""

from __future__ import annotations

import ipaddress
import logging
import socket

from pgtrickle.errors import ConfigError
from pgtrickle.telemetry import WEB_LISTENING, event

log = logging.getLogger(__name__)

SHORTEST_TOKEN = 16
DEFAULT_PORT = 8321


def listen(address: str, token: str) -> socket.socket:
    """A listening socket. Raises ConfigError when the address is not usable, or needs a token."""
    host, port = parse_address(address)
    if token and len(token) < SHORTEST_TOKEN:
        raise ConfigError(f"http_token is shorter than {SHORTEST_TOKEN} characters", hint="openssl rand -hex 24")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, socket_address = addresses[0]
    except OSError as error:
        raise ConfigError(f"http = {address}: {host} is not known: {error}") from error
    if not ipaddress.ip_address(socket_address[0]).is_loopback and not token:
        raise ConfigError(
            f"http = {address} is reachable from other machines and needs a token",
            hint="set PGTRICKLE_HTTP_TOKEN, or http_token in the TOML file",
        )
    try:
        listener = socket.create_server(socket_address[:2], family=family, reuse_port=False)
    except OSError as error:
        raise ConfigError(f"cannot listen on http = {address}: {error.strerror}", hint="choose another port") from error
    log.info("The web UI is served", extra=event(WEB_LISTENING, url=url_of(listener)))
    return listener


def parse_address(text: str) -> tuple[str, int]:
    """host:port, [ipv6]:port, :port or host."""
    host, colon, port = text.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")) or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdecimal() or int(port) > 65_535:
        raise ConfigError(f"http = {text} is not valid", hint="write host:port, for example 127.0.0.1:8321")
    return host.strip("[]") or "127.0.0.1", int(port)


def names_loopback(host: str) -> bool:
    """Whether the address is a loopback address; False for names except localhost, which may resolve to any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_loopback(listener: socket.socket) -> bool:
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
