"""Live updates by server-sent events: the changed parts of an open page.

An element with an id and `data-live` is a part. When the set of parts changes, the whole content is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request

SHORTEST_SECONDS = 1.0
IDLE_FACTOR = 10.0  # a read that takes t seconds is followed by a pause of at least ten times t
KEEP_ALIVE_SECONDS = 15.0
MOST_STREAMS = 50

_PART = re.compile(r'<(tr|section|g|p|dl|ul)\b([^>]*\bid="([^"]+)"[^>]*\bdata-live\b[^>]*)>(.*?)</\1>', re.DOTALL)


def parts_of(content: str) -> dict[str, str]:
    """The live parts by id. A live part contains no element with its own tag name."""
    return {match[3]: match[0] for match in _PART.finditer(content)}


def message(event: str, value: object) -> bytes:
    return f"event: {event}\ndata: {json.dumps(value, ensure_ascii=True)}\n\n".encode()


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


async def updates(
    request: Request, content: Callable[[], str], alert_count: Callable[[], int], shown: str
) -> AsyncIterator[bytes]:
    """`content` renders the page; `shown` is the digest of the content that the browser shows."""
    before = await asyncio.to_thread(content)
    parts, alerts, sent_at = parts_of(before), alert_count(), time.monotonic()
    yield b"retry: 2000\n\n"
    if digest(before) != shown:
        yield message("content", before)
        yield message("alerts", alerts)
    pause = SHORTEST_SECONDS
    while True:
        await asyncio.sleep(pause)
        if await request.is_disconnected():
            return
        began = time.monotonic()
        now = await asyncio.to_thread(content)
        pause = max(SHORTEST_SECONDS, IDLE_FACTOR * (time.monotonic() - began))
        if now != before:
            new_parts = parts_of(now)
            if new_parts.keys() == parts.keys():
                changed = {name: html for name, html in new_parts.items() if parts[name] != html}
                if changed:
                    yield message("patch", changed)
                    sent_at = time.monotonic()
            else:
                yield message("content", now)
                sent_at = time.monotonic()
            before, parts = now, new_parts
        if (count := alert_count()) != alerts:
            yield message("alerts", count)
            alerts, sent_at = count, time.monotonic()
        if time.monotonic() - sent_at > KEEP_ALIVE_SECONDS:
            yield b": still here\n\n"
            sent_at = time.monotonic()
