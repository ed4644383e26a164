"""The ASGI application: routes, and how a page becomes a response."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pgtrickle.errors import PgtrickleError
from pgtrickle.observe.alerts import alerts
from pgtrickle.observe.database import ACTIONS
from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.observe.metrics import exposition
from pgtrickle.telemetry import WEB_ACTION, WEB_REFUSED, event
from pgtrickle.web import pages
from pgtrickle.web.auth import COOKIE, SESSION_SECONDS, Gate, Viewer, same_origin
from pgtrickle.web.live import MOST_STREAMS, digest, updates
from pgtrickle.web.pages import Page, PageMaker, PageRequest
from pgtrickle.web.render import asset, path, render, to_json
from pgtrickle.web.security import SecurityHeaders
from pgtrickle.web.visible import visible_fleet

log = logging.getLogger(__name__)

LOGIN_SECONDS = 1.0  # after a wrong token
LARGEST_FORM = 16_384
METRICS_AGE = 5.0  # seconds; scrapes of several monitors within this time share one read
READY_SECONDS = 30.0  # a scheduler that has not ticked for so long is not working

PAGES: Mapping[str, PageMaker] = {
    "": pages.fleet_page,
    "tables": pages.tables_page,
    "graph": pages.GraphPage(),
    "workers": pages.workers_page,
    "sources": pages.sources_page,
    "settings": pages.settings_page,
    "alerts": pages.alerts_page,
}
DONE_MESSAGES = {
    "refresh": "A refresh was requested.",
    "suspend": "The stream table is suspended.",
    "resume": "The stream table is resumed.",
    "schedule": "The schedule was changed.",
}


@dataclass(frozen=True, slots=True)
class Options:
    """`only_loopback`: other machines cannot reach the address, so pages need no token."""

    token: str = ""
    only_loopback: bool = True
    metrics_max_tables: int = 1000


def create_app(observer: FleetObserver, options: Options) -> Starlette:
    web = Web(observer, options)
    routes = [
        Route("/healthz", web.healthz),
        Route("/readyz", web.readyz),
        Route("/favicon.ico", _icon),  # browsers request it for responses that name no icon, such as /healthz and JSON
        Route("/metrics", web.guarded(web.metrics)),
        Route("/events", web.guarded(web.events)),
        Route("/login", web.login, methods=["GET", "POST"]),
        Route("/logout", web.logout, methods=["POST"]),
        Mount("/static", StaticFiles(packages=[("pgtrickle.web", "static")])),
        Route("/{rest:path}", web.guarded(web.page), methods=["GET"]),
        Route("/{rest:path}", web.guarded(web.action), methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(SecurityHeaders, only_loopback=options.only_loopback)],
        exception_handlers={404: _missing, 405: _wrong_method},
    )


async def _icon(_request: Request) -> Response:
    return RedirectResponse(asset("icon.svg"))


async def _missing(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("not found\n", 404)


async def _wrong_method(_request: Request, _error: Exception) -> Response:
    return PlainTextResponse("method not allowed\n", 405)


Handler = Callable[[Request], Awaitable[Response]]


class Web:
    """The handlers. Reading databases happens in threads: the event loop never waits for a server."""

    def __init__(self, observer: FleetObserver, options: Options) -> None:
        self._observer = observer
        self._options = options
        self._gate = Gate(options.token, is_open=options.only_loopback)
        self._streams = 0

    def guarded(self, handler: Handler) -> Handler:
        async def guard(request: Request) -> Response:
            if self._gate.may_read(self._gate.viewer(request)):
                return await handler(request)
            if _wants_html(request):
                return RedirectResponse("/login?" + _next(request), 303)
            return PlainTextResponse("the token is required\n", 401, {"www-authenticate": "Bearer"})

        return guard

    async def healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _request: Request) -> Response:
        fleet = await asyncio.to_thread(self._observer.fleet, ())
        now = time.time()
        late = [s.database for s in fleet.schedulers if s.state == "ACTIVE" and now - s.seen > READY_SECONDS]
        problem = (
            f"this launcher is {fleet.launcher.lower()}"
            if fleet.launcher != "ACTIVE"
            else f"{len(late)} schedulers do not tick"
            if late
            else None
        )
        return PlainTextResponse("ready\n" if problem is None else f"{problem}\n", 200 if problem is None else 503)

    async def metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")

        def collect() -> tuple[bytes, str]:
            fleet = self._observer.read(METRICS_AGE)
            counts = {observer.address.label: observer.counts for observer in self._observer.observers()}
            return exposition(fleet, counts, self._options.metrics_max_tables, accept)

        text, content_type = await asyncio.to_thread(collect)
        return Response(text, media_type=None, headers={"content-type": content_type})

    # -- pages

    async def page(self, request: Request) -> Response:
        parts = _parts(request)
        viewer = self._gate.viewer(request)
        if len(parts) == 5 and parts[0] == "tables" and parts[4] in ACTIONS:
            return await self._confirm(request, parts, viewer)
        maker = _maker(parts)
        if maker is None:
            page = pages.not_found("There is no such page.")
        else:
            try:
                page = await asyncio.to_thread(
                    maker, self._observer, PageRequest(parts[1:], request.query_params, viewer)
                )
            except PgtrickleError as error:
                page = _failed(error, viewer)
        return self._response(request, page, viewer)

    def _response(self, request: Request, page: Page, viewer: Viewer) -> Response:
        if _wants_json(request):
            return Response(to_json(page.data), page.status, media_type="application/json")
        content = self._content(page, viewer)
        is_live = page.status == 200 and _maker(_parts(request)) is not None
        values = {
            "page": page,
            "content": content,
            "digest": digest(content) if is_live else "",
            "viewer": viewer,
            "next": _next(request),
            "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            "flash": DONE_MESSAGES.get(request.query_params.get("done", "")),
            "alert_count": self._alert_count(viewer),
        }
        return HTMLResponse(render("base.html", values), page.status)

    def _content(self, page: Page, viewer: Viewer) -> str:
        return render(page.template, {**page.data, **page.drawing, "viewer": viewer, "title": page.title})

    def _alert_count(self, viewer: Viewer) -> int:
        fleet = self._observer.fleet(tuple(observer.state for observer in self._observer.observers()))
        return len(alerts(visible_fleet(fleet, trusted=viewer.trusted)))

    async def events(self, request: Request) -> Response:
        """Parameters: `for`, the address of the open page, and `digest`, of the content that it shows."""
        target = urlsplit(request.query_params.get("for", "/"))
        parts = _split(target.path)
        maker, viewer = _maker(parts), self._gate.viewer(request)
        if maker is None:
            return PlainTextResponse("no such page\n", 404)
        if self._streams >= MOST_STREAMS:
            return PlainTextResponse("too many pages are open\n", 503, {"retry-after": "30"})
        page_request = PageRequest(parts[1:], {k: v[-1] for k, v in parse_qs(target.query).items()}, viewer)

        def content() -> str:
            try:
                return self._content(maker(self._observer, page_request), viewer)
            except PgtrickleError as error:
                return self._content(_failed(error, viewer), viewer)

        async def stream() -> AsyncIterator[bytes]:
            self._streams += 1
            try:
                shown = request.query_params.get("digest", "")
                async for text in updates(request, content, lambda: self._alert_count(viewer), shown):
                    yield text
            finally:
                self._streams -= 1

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"x-accel-buffering": "no"})

    # -- token and changes

    async def login(self, request: Request) -> Response:
        target = request.query_params.get("next", "/")
        if not target.startswith("/") or target.startswith(("//", "/\\")):
            target = "/"
        values = {"next": target, "wrong": False, "possible": bool(self._options.token)}
        if request.method == "GET":
            return HTMLResponse(render("login.html", values))
        form = await _form(request)
        if not same_origin(request) or not self._gate.accepts(form.get("token", "")):
            log.warning("A log-in to the web UI was refused", extra=event(WEB_REFUSED))
            await asyncio.sleep(LOGIN_SECONDS)
            return HTMLResponse(render("login.html", {**values, "wrong": True}), 403)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            COOKIE,
            self._gate.new_session(),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    async def logout(self, request: Request) -> Response:
        if not same_origin(request):
            return PlainTextResponse("forbidden\n", 403)
        response = RedirectResponse("/", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

    async def _confirm(self, request: Request, parts: tuple[str, ...], viewer: Viewer) -> Response:
        if not viewer.trusted:
            return RedirectResponse("/login?" + _next(request), 303)
        _, label, schema, name, action = parts
        fleet = await asyncio.to_thread(self._observer.read)
        database = fleet.database(label)
        table = database.table(schema, name) if database is not None else None
        if table is None:
            return self._response(request, pages.not_found("There is no such stream table."), viewer)
        page = Page(
            "confirm.html",
            f"{action.capitalize()} {schema}.{name}",
            "tables",
            {"database": label, "table": table, "action": action},
        )
        return self._response(request, page, viewer)

    async def action(self, request: Request) -> Response:
        parts, viewer = _parts(request), self._gate.viewer(request)
        if len(parts) != 5 or parts[0] != "tables" or parts[4] not in ACTIONS:
            return PlainTextResponse("not found\n", 404)
        form = await _form(request)
        if not self._gate.permits_form(viewer, request, form.get("csrf", "")):
            return PlainTextResponse("forbidden: the token and a form of this page are required\n", 403)
        _, label, schema, name, action = parts
        database_observer = self._observer.observer(label)
        if database_observer is None:
            return PlainTextResponse("there is no such database\n", 404)
        fields = {"database": label, "table": f"{schema}.{name}", "action": action}
        try:
            await asyncio.to_thread(database_observer.act, action, schema, name, form.get("schedule"))
        except PgtrickleError as error:
            if _wants_html(request):
                return self._response(request, _failed(error, viewer), viewer)
            return JSONResponse({"error": error.one_line()}, 409)
        log.info("A stream table was changed in the web UI", extra=event(WEB_ACTION, **fields))
        if _wants_html(request):
            return RedirectResponse(f"{path('tables', label, schema, name)}?done={action}", 303)
        return JSONResponse({"done": action})


def _failed(error: PgtrickleError, viewer: Viewer) -> Page:
    text = error.one_line() if viewer.trusted else error.code
    return Page("failed.html", "Not possible", "", {"error": text}, status=409)


def _maker(parts: tuple[str, ...]) -> PageMaker | None:
    if len(parts) == 1:
        return PAGES.get(parts[0])
    if len(parts) == 4 and parts[0] == "tables":
        return pages.table_page
    return None


def _parts(request: Request) -> tuple[str, ...]:
    """The parts of the path before decoding: a name may contain a slash, sent as %2F."""
    return _split((request.scope.get("raw_path") or b"/").decode("ascii", "replace"))


def _split(raw: str) -> tuple[str, ...]:
    return tuple(unquote(part, errors="replace") for part in raw.partition("?")[0].removeprefix("/").split("/"))


def _next(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return urlencode({"next": (request.scope.get("raw_path") or b"/").decode("ascii", "replace") + query})


def _wants_json(request: Request) -> bool:
    return request.query_params.get("format") == "json" or "application/json" in request.headers.get("accept", "")


def _wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form; none if it is larger than LARGEST_FORM."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_FORM:
            return {}
    return {key: values[-1] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
