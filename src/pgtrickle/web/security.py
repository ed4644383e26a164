"""Headers of every response, and the check of the Host header, as ASGI middleware.

A site that the user visits may point its own name at our loopback address. Its requests have that name as Host: where
pages need no token, requests with other names than those of this machine are refused.
"""

from __future__ import annotations

import ipaddress

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # "no-referrer" would make browsers send our own forms with "Origin: null"
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
LONGEST_PATH = 8_192


class SecurityHeaders:
    """`only_loopback`: answer only requests whose Host is this machine."""

    def __init__(self, app: ASGIApp, *, only_loopback: bool) -> None:
        self._app = app
        self._only_loopback = only_loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *_HEADERS]
                if b"cache-control" not in present:
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        if self._only_loopback and not is_own_host(_header(scope, b"host")):
            await PlainTextResponse("unknown host\n", 421)(scope, receive, guarded)
        elif len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"") > LONGEST_PATH:
            await PlainTextResponse("the address is too long\n", 414)(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)


def _header(scope: Scope, header: bytes) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == header), "")


def is_own_host(host: str) -> bool:
    name = host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
