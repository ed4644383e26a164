"""Who may see and do what: a token, a session cookie for browsers, and protection against forged forms.

Without a token everything is read-only, without error texts. Programs send `Authorization: Bearer TOKEN`. Browsers log
in once; the cookie is a signed time, and each form has a value that is signed for its session.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request

COOKIE = "pgtrickle_session"
SESSION_SECONDS = 12 * 3600


@dataclass(frozen=True, slots=True)
class Viewer:
    """`trusted`: has the token. `csrf`: the token in its forms; None for a program, which sends the token itself."""

    trusted: bool = False
    csrf: str | None = None
    may_log_in: bool = False


class Gate:
    """`is_open`: pages may be read without the token."""

    def __init__(self, token: str, *, is_open: bool) -> None:
        self._token = token.encode()
        self._key = secrets.token_bytes(32)  # sessions end with the process
        self.is_open = is_open

    def viewer(self, request: Request) -> Viewer:
        if not self._token:
            return Viewer()
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return Viewer(self.accepts(token.strip()), None, True)
        session = _cookie(request)
        if session is not None and self._is_valid(session):
            return Viewer(True, self._sign("csrf", session), True)
        return Viewer(may_log_in=True)

    def may_read(self, viewer: Viewer) -> bool:
        return self.is_open or viewer.trusted

    def accepts(self, token: str) -> bool:
        return bool(self._token) and hmac.compare_digest(token.encode("utf-8", "surrogatepass"), self._token)

    def new_session(self) -> str:
        until = f"{int(time.time()) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        return f"{until}.{self._sign('session', until)}"

    def permits_form(self, viewer: Viewer, request: Request, csrf: str) -> bool:
        """Whether the request may change something: it is a form of our own page, or from a program with the token."""
        if not viewer.trusted:
            return False
        if viewer.csrf is None:
            return True
        return same_origin(request) and hmac.compare_digest(csrf.encode("utf-8", "surrogatepass"), viewer.csrf.encode())

    def _is_valid(self, session: str) -> bool:
        value, _, signature = session.rpartition(".")
        until = value.partition(".")[0]
        return (
            hmac.compare_digest(signature.encode("utf-8", "surrogatepass"), self._sign("session", value).encode())
            and until.isdecimal()
            and int(until) > time.time()
        )

    def _sign(self, purpose: str, value: str) -> str:
        text = f"{purpose}:{value}".encode("utf-8", "surrogatepass")
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()


def same_origin(request: Request) -> bool:
    """Whether a form comes from our own pages. Browsers send the origin; a page of another site cannot change it."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host")


def _cookie(request: Request) -> str | None:
    jar = SimpleCookie()
    try:
        jar.load(request.headers.get("cookie", ""))
    except CookieError:
        return None
    cookie = jar.get(COOKIE)
    return None if cookie is None else cookie.value
