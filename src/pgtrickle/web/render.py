"""Templates with automatic escaping, and their filters, which format values for people."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from pgtrickle import __version__

NONE = "\N{EN DASH}"
# Properties that the JSON of a page contains in addition to the fields.
_DERIVED = ("freshness", "health", "scheduler", "lag", "is_mirror")


def since(seconds: float | None) -> str:
    """A duration in two units at most."""
    if seconds is None:
        return NONE
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, lower in (("d", 86_400, "h"), ("h", 3_600, "min"), ("min", 60, "s")):
        if seconds >= size:
            rest = (seconds % size) / {"h": 3_600, "min": 60, "s": 1}[lower]
            return f"{seconds // size:.0f} {unit}" + (f" {math.floor(rest)} {lower}" if rest >= 1 else "")
    return f"{seconds:.0f} s"


def milliseconds(ms: float | None) -> str:
    return NONE if ms is None else since(ms / 1000)


def number(value: float | None, digits: int = 0) -> str:
    """A number; from 10,000 on with a unit prefix."""
    if value is None:
        return NONE
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.1f} {letter}"
    return f"{value:,.{digits}f}"


def size(value: float | None) -> str:
    if value is None:
        return NONE
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def moment(at: float | None) -> str:
    """An absolute time; the page's script shows its age."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def words(value: object) -> str:
    return str(value).replace("_", " ").lower()


def path(*parts: str) -> str:
    """A link; names may contain anything, slashes and dots included."""
    encoded = [
        quote(part, safe="").replace(".", "%2E") if part.strip(".") == "" else quote(part, safe="") for part in parts
    ]
    return "/" + "/".join(encoded)


@cache
def asset(name: str) -> str:
    """The address of a static file, with its version."""
    content = files("pgtrickle.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"


@cache
def environment() -> Environment:
    jinja = Environment(
        loader=PackageLoader("pgtrickle.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters.update(
        since=since,
        milliseconds=milliseconds,
        number=number,
        size=size,
        moment=moment,
        iso=iso,
        words=words,
        dedent=dedent,
    )
    jinja.globals.update(path=path, asset=asset, version=__version__)
    return jinja


def dedent(text: str) -> str:
    """A query without the indentation that its lines share, and without empty lines around it."""
    return textwrap.dedent(text).strip("\n").rstrip()


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


def to_json(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, default=str)


def plain(value: Any) -> Any:
    """The value as JSON types: dataclasses and mappings as dictionaries, sequences as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        values = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        kind = type(value)
        return values | {
            name: plain(getattr(value, name)) for name in _DERIVED if isinstance(getattr(kind, name, None), property)
        }
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
