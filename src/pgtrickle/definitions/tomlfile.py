"""Several definitions in one TOML file: [[stream_table]], [[refresh_group]], and keys for the whole set."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from pgtrickle.definitions.definition import (
    OPTIONS,
    Definition,
    DefinitionProblem,
    FilePosition,
    GroupDefinition,
    Option,
    nearest,
    option_value,
)
from pgtrickle.definitions.sqlfile import trimmed

TOP = frozenset({"set", "databases", "database", "stream_table", "refresh_group"})
TABLE_KEYS = frozenset({"name", "query", "query_file", "database", "databases", *OPTIONS})
GROUP_KEYS = frozenset({"name", "members", "isolation", "database", "databases"})
_HEADER = re.compile(r"\s*\[+\s*([A-Za-z_]+)\s*\]+")
_KEY = re.compile(r"""\s*["']?([A-Za-z_]+)["']?\s*=""")


class OutsideError(Exception):
    """A definition names a file that is not below its folder."""


@dataclass(slots=True)
class TomlFile:
    """The content of one file, and its problems."""

    definitions: list[Definition] = field(default_factory=list)
    groups: list[GroupDefinition] = field(default_factory=list)
    problems: list[DefinitionProblem] = field(default_factory=list)
    set_name: str | None = None
    set_at: FilePosition | None = None
    databases: tuple[str, ...] = ()
    query_files: list[str] = field(default_factory=list)


def read_toml(path: str, text: str, read_query: Callable[[str], str]) -> TomlFile:
    """`read_query` returns the text of a query_file by the name that the TOML file contains; it raises OSError or
    OutsideError."""
    toml = TomlFile()
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        at = FilePosition(path, int(line[1]) if line else max(text.count("\n"), 1))
        toml.problems.append(DefinitionProblem(at, f"not valid TOML: {error}"))
        return toml
    lines = _Lines(path, text)
    top = _Reader(toml, document, TOP, lines)
    toml.set_name = top.text("set")
    if toml.set_name is not None:
        toml.set_at = top.at("set")
    toml.databases = top.names("databases", "database")
    for kind, known in (("stream_table", TABLE_KEYS), ("refresh_group", GROUP_KEYS)):
        entries = document.get(kind, [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            toml.problems.append(
                DefinitionProblem(lines.of("", 0, kind), f"{kind} is not a list of tables", f"write [[{kind}]]")
            )
            continue
        for number, entry in enumerate(entries):
            reader = _Reader(toml, entry, known, lines, kind, number)
            if kind == "stream_table":
                _stream_table(toml, reader, read_query)
            else:
                _group(toml, reader)
    return toml


def _stream_table(toml: TomlFile, reader: _Reader, read_query: Callable[[str], str]) -> None:
    before = len(toml.problems)
    name, query, file = reader.text("name", needed=True), reader.text("query"), reader.text("query_file")
    databases = reader.names("databases", "database")
    query_at = reader.at("query")
    if file is not None:
        toml.query_files.append(file)
    if (query is None) == (file is None):
        reader.add_problem("query", "one of query and query_file is needed" if query is None else "query is set twice")
    elif file is not None:
        try:
            query, query_at = read_query(file), FilePosition(str(PurePath(reader.lines.path).parent / file), 1)
        except OutsideError as error:
            reader.add_problem(
                "query_file", str(error), "put it in the folder of this file or below, and use a relative path"
            )
        except (OSError, UnicodeDecodeError) as error:
            reader.add_problem("query_file", f"cannot read {file}: {getattr(error, 'strerror', None) or error}")
    options: dict[str, Option] = {}
    for key in reader.entry.keys() & OPTIONS.keys():
        try:
            options[key] = option_value(key, reader.entry[key])
        except ValueError as error:
            reader.add_problem(key, f"{key} is not {error}: {reader.entry[key]}")
    if query is not None and not trimmed(query):
        reader.add_problem("query", "the query is empty")
    if len(toml.problems) > before or name is None or query is None:
        return
    numbers = {key: reader.at(key).line for key in reader.entry}
    above = query[: len(query) - len(query.lstrip())].count("\n")
    if file is None and query_at.line in reader.lines.opened:
        above += 1  # the line break behind the quotes is not part of the text
    first = FilePosition(query_at.path, query_at.line + above)
    toml.definitions.append(Definition(name, trimmed(query), reader.at("name"), first, options, databases, numbers))


def _group(toml: TomlFile, reader: _Reader) -> None:
    name, isolation = reader.text("name", needed=True), reader.text("isolation")
    members, databases = reader.names("members"), reader.names("databases", "database")
    if len(set(members)) < 2:
        reader.add_problem(
            "members", "a refresh group needs at least two members", 'write members = ["schema.a", "schema.b"]'
        )
    elif name is not None:
        toml.groups.append(GroupDefinition(name, members, reader.at("name"), isolation or "read_committed", databases))


@dataclass(slots=True)
class _Reader:
    """Reads the values of one table of the document, and records their problems."""

    toml: TomlFile
    entry: Mapping[str, Any]
    known: frozenset[str]
    lines: _Lines
    kind: str = ""
    number: int = 0

    def __post_init__(self) -> None:
        for key in self.entry:
            if key not in self.known:
                self.add_problem(key, f"unknown key {key}", nearest(key, self.known))

    def at(self, key: str) -> FilePosition:
        return self.lines.of(self.kind, self.number, key)

    def add_problem(self, key: str, message: str, hint: str | None = None) -> None:
        self.toml.problems.append(DefinitionProblem(self.at(key), message, hint))

    def text(self, key: str, *, needed: bool = False) -> str | None:
        value = self.entry.get(key)
        if isinstance(value, str) and value.strip():
            return value
        if value is not None or needed:
            self.add_problem(key, f"{key} is missing" if value is None else f"{key} is not a text: {value!r}")
        return None

    def names(self, *keys: str) -> tuple[str, ...]:
        used_keys = [key for key in keys if key in self.entry]
        if not used_keys:
            return ()
        value = self.entry[used_keys[0]]
        names = [value] if isinstance(value, str) else value
        if len(used_keys) > 1:
            self.add_problem(used_keys[0], f"{used_keys[0]} is set twice", f"remove {used_keys[1]}")
        elif not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
            self.add_problem(used_keys[0], f"{used_keys[0]} is not a name or a list of names: {value!r}")
        else:
            return tuple(names)
        return ()


class _Lines:
    """The lines of keys, which tomllib does not report. Text in multi-line strings is skipped."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.places: dict[tuple[str, int, str], int] = {}
        self.opened: set[int] = set()  # lines that end with the quotes of a multi-line string
        counts: dict[str, int] = {}
        table = ("", 0)
        inside = ""
        for number, line in enumerate(text.split("\n"), start=1):
            if inside:
                if line.count(inside) % 2:
                    inside = ""
                continue
            if header := _HEADER.match(line):
                kind = header[1]
                table = (kind, counts.get(kind, 0))
                counts[kind] = table[1] + 1
                self.places.setdefault((*table, ""), number)
            elif key := _KEY.match(line):
                self.places.setdefault((*table, key[1]), number)
            for quotes in ('"""', "'''"):
                if line.count(quotes) % 2:
                    inside = quotes
                    if line.rstrip().endswith(quotes):
                        self.opened.add(number)

    def of(self, kind: str, number: int, key: str) -> FilePosition:
        line = self.places.get((kind, number, key)) or self.places.get((kind, number, ""), 1)
        return FilePosition(self.path, line)
