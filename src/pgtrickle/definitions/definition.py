"""The content of definition files: definitions, refresh groups, the set, and problems with their positions."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

Option: TypeAlias = str | bool | int | float

# Every option of create_stream_table, and tier, with its type, because a header is text. _check_options() in SQL checks
# the values.
OPTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "schedule": str,
        "refresh_mode": str,
        "initialize": bool,
        "diamond_consistency": str,
        "diamond_schedule_policy": str,
        "cdc_mode": str,
        "append_only": bool,
        "pooler_compatibility_mode": bool,
        "partition_by": str,
        "max_differential_joins": int,
        "max_delta_fraction": float,
        "engine": str,
        "tier": str,
    }
)
# Defaults of options that a file does not mention; all others are then unset.
DEFAULTS: Mapping[str, Option] = MappingProxyType(
    {
        "schedule": "calculated",
        "refresh_mode": "AUTO",
        "append_only": False,
        "pooler_compatibility_mode": False,
        "tier": "auto",
    }
)
_TRUE, _FALSE = ("true", "on", "yes", "1"), ("false", "off", "no", "0")


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    """A line of a file."""

    path: str
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class DefinitionProblem:
    """A problem, its position and a hint."""

    at: FilePosition
    message: str
    hint: str | None = None

    def one_line(self) -> str:
        text = f"{self.at}: {self.message}" + (f" (hint: {self.hint})" if self.hint else "")
        return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Definition:
    """A stream table as a file defines it. `databases` are names or globs; empty: the set's."""

    name: str
    query: str
    at: FilePosition
    query_at: FilePosition
    options: Mapping[str, Option] = field(default_factory=dict)
    databases: tuple[str, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def place_of(self, key: str) -> FilePosition:
        """The line of an option, or of the definition where it has none."""
        return FilePosition(self.at.path, self.lines.get(key, self.at.line))


@dataclass(frozen=True, slots=True)
class GroupDefinition:
    """A refresh group as a file defines it."""

    name: str
    members: tuple[str, ...]
    at: FilePosition
    isolation: str = "read_committed"
    databases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DefinitionSet:
    """All definitions of a folder. Its name is stored with what it created, so that it prunes nothing else."""

    name: str
    definitions: tuple[Definition, ...] = ()
    groups: tuple[GroupDefinition, ...] = ()
    databases: tuple[str, ...] = ()


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint for an unknown key."""
    known = sorted(known)
    close = difflib.get_close_matches(word.lower(), known, 1)
    return f"did you mean {close[0]}?" if close else f"valid keys: {', '.join(known)}"


def option_value(key: str, raw: object) -> Option:
    """The value in the option's type; raises ValueError with the expected type."""
    kind = OPTIONS[key]
    if isinstance(raw, str) and kind is not str:
        return _from_text(kind, raw)
    if kind is float and isinstance(raw, int) and not isinstance(raw, bool):
        return float(raw)
    if kind is str and isinstance(raw, int) and not isinstance(raw, bool):
        return str(raw)  # schedule = 90
    if not isinstance(raw, kind) or (kind is int and isinstance(raw, bool)):
        raise ValueError(_SHAPES[kind])
    value: Option = raw
    return value


_SHAPES: Mapping[type[Any], str] = {str: "a text", bool: "true or false", int: "a whole number", float: "a number"}
_NUMBERS: Mapping[type[Any], Callable[[str], Option]] = {int: int, float: float}


def _from_text(kind: type[Any], text: str) -> Option:
    if kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError(_SHAPES[bool])
        return text.lower() in _TRUE
    try:
        return _NUMBERS[kind](text)
    except ValueError:
        raise ValueError(_SHAPES[kind]) from None
