"""The order of stream tables: sources before readers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

Name: TypeAlias = tuple[str, str]  # schema, table

_IDENTIFIER = r'(?:"(?:[^"]|"")+"|[A-Za-z_\u0080-\U0010ffff][\w$]*)'
_TOKEN = re.compile(
    rf"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$|(?P<path>{_IDENTIFIER}(?:\s*\.\s*{_IDENTIFIER})*)",
    re.DOTALL,
)


def mentions(query: str, names: Collection[Name]) -> set[Name]:
    """Those of `names` that the query may refer to: a guess, because a column or an alias may have the same name."""
    mentioned = set()
    for token in _TOKEN.finditer(query):
        if token["path"] is not None:
            parts = [_folded(part) for part in re.findall(_IDENTIFIER, token["path"])]
            # a.b is a table with its schema, or a column of a table
            mentioned |= {name for name in names if name[1] in parts and (len(parts) == 1 or _may_mean(parts, name))}
    return mentioned


def upstream_first(nodes: Iterable[Name], reads: Mapping[Name, Collection[Name]]) -> list[Name]:
    """Sources before readers, otherwise in the given order. Cycles are broken at some point."""
    nodes = list(nodes)
    known, seen = set(nodes), set[Name]()
    result: list[Name] = []
    for start in nodes:
        stack = [(start, False)]
        while stack:
            node, done = stack.pop()
            if done:
                result.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                upstream = (name for name in sorted(reads.get(node, ()), reverse=True) if name in known)
                stack += [(name, False) for name in upstream]
    return result


def _may_mean(parts: list[str], name: Name) -> bool:
    return any(parts[i : i + 2] == list(name) for i in range(len(parts) - 1)) or parts[0] == name[1]


def _folded(identifier: str) -> str:
    if identifier.startswith('"'):
        return identifier[1:-1].replace('""', '"')
    return identifier.lower()
