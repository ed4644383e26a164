"""One definition per SQL file: comment lines `-- key: value` at its top, then the query.

The header ends at the first line that is empty or no comment. A line in it that is not like `word: ...` is prose.
"""

from __future__ import annotations

import csv
import re
import string
from pathlib import PurePath

from pgtrickle.definitions.definition import (
    OPTIONS,
    Definition,
    DefinitionProblem,
    FilePosition,
    Option,
    nearest,
    option_value,
)

KEYS = frozenset({"name", "database", "databases", *OPTIONS})
_KEY = re.compile(r"--\s*([A-Za-z_]+)\s*:(?:\s+(.*))?$")


def read_sql(path: str, text: str) -> tuple[Definition | None, list[DefinitionProblem]]:
    """The definition in a file's text, or its problems."""
    problems: list[DefinitionProblem] = []
    name, named_at = _stem(path), 1
    databases: tuple[str, ...] = ()
    options: dict[str, Option] = {}
    lines: dict[str, int] = {}
    rows = text.split("\n")
    header_lines = len(rows)
    for number, row in enumerate(rows, start=1):
        if not row.lstrip().startswith("--"):
            header_lines = number - 1
            break
        match = _KEY.match(row.strip())
        if match is None:
            continue
        key, value, at = match[1].lower(), (match[2] or "").strip(), FilePosition(path, number)
        if key not in KEYS:
            hint = f"{nearest(key, KEYS)} Other comments belong below the first empty line."
            problems.append(DefinitionProblem(at, f"unknown key {match[1]}", hint))
        elif key in lines or (key.startswith("database") and databases):
            problems.append(DefinitionProblem(at, f"{key} is set twice", f"see line {lines.get(key, 1)}"))
        elif not value:
            problems.append(DefinitionProblem(at, f"{key} has no value", f"write -- {key}: value, or remove the line"))
        else:
            lines[key] = number
            if key == "name":
                name, named_at = value, number
            elif key.startswith("database"):
                databases = split_names(value)
            else:
                try:
                    options[key] = option_value(key, value)
                except ValueError as error:
                    problems.append(DefinitionProblem(at, f"{key} is not {error}: {value}"))
    query = trimmed("\n".join(rows[header_lines:]))
    blank_lines = next((i for i, row in enumerate(rows[header_lines:]) if row.strip()), 0)
    if not query:
        hint = "write the SELECT below the header, which ends at the first empty line"
        problems.append(DefinitionProblem(FilePosition(path, max(header_lines, 1)), "there is no query", hint))
    if problems:
        return None, problems
    at = FilePosition(path, named_at)
    return Definition(
        name, query, at, FilePosition(path, header_lines + blank_lines + 1), options, databases, lines
    ), []


def trimmed(query: str) -> str:
    """The query without surrounding whitespace and without its final semicolons."""
    return query.strip().rstrip(f";{string.whitespace}")


def split_names(text: str) -> tuple[str, ...]:
    """The names of a comma-separated list; a name with commas, or with blanks at its ends, is in double quotes."""
    return tuple(name for name in next(csv.reader([text], skipinitialspace=True)) if name)


def joined_names(names: tuple[str, ...]) -> str:
    """The reverse of split_names."""
    return ", ".join(
        '"' + name.replace('"', '""') + '"' if re.search(r'[,"]|^\s|\s$', name) else name for name in names
    )


def _stem(path: str) -> str:
    return PurePath(path).name.removesuffix(".sql")
