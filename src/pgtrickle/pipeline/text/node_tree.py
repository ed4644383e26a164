"""Finds implicit conversions in PostgreSQL's text of a parse tree (pg_node_tree).

A type with its own equality (citext, hstore) has no operator in pg_catalog. A comparison of its values that does not
name the operator fails or, if the type can be converted implicitly, uses the operator of another type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

_TOKEN = re.compile(r"[{}()]|(?:\\.|[^\s{}()\\])+", re.DOTALL)
_IMPLICIT = "2"  # COERCE_IMPLICIT_CAST
# The target type of a coercion, its form, and its argument.
_COERCIONS = {
    "RELABELTYPE": ("resulttype", "relabelformat", "arg"),
    "COERCEVIAIO": ("resulttype", "coerceformat", "arg"),
    "FUNCEXPR": ("funcresulttype", "funcformat", "args"),
}
_TYPES = (
    *("vartype", "consttype", "paramtype", "funcresulttype", "opresulttype", "aggtype", "wintype", "resulttype"),
    *("casetype", "coalescetype", "minmaxtype", "refrestype", "array_typeid", "row_typeid"),
)


@dataclass(slots=True)
class _Node:
    name: str
    fields: dict[str, list[_Node | str]] = field(default_factory=dict)


def implicitly_converted_type(tree: str, base: Mapping[int, int]) -> int | None:
    """A type of `base` (oid -> base type) of which a value is converted implicitly to another type; None if there is
    none."""
    for node in _walk(_parsed(tree)):
        if node.name not in _COERCIONS:
            continue
        to, form, of = _COERCIONS[node.name]
        if node.fields.get(form) != [_IMPLICIT]:
            continue
        result = _oid(node.fields.get(to))
        for value in node.fields.get(of, [])[:1]:
            source_type = _type(value) if isinstance(value, _Node) else None
            if source_type is not None and source_type in base and base.get(result or 0, result) != base[source_type]:
                return source_type
    return None


def _type(node: _Node) -> int | None:
    if node.name == "SUBLINK":
        query = next((q for q in node.fields.get("subselect", []) if isinstance(q, _Node)), None)
        entry = next((e for e in query.fields.get("targetList", []) if isinstance(e, _Node)), None) if query else None
        shown = next((e for e in entry.fields.get("expr", []) if isinstance(e, _Node)), None) if entry else None
        return _type(shown) if shown is not None else None
    return next((_oid(node.fields[name]) for name in _TYPES if name in node.fields), None)


def _oid(value: list[_Node | str] | None) -> int | None:
    return int(value[0]) if value and isinstance(value[0], str) and value[0].isdigit() else None


def _walk(node: _Node) -> Iterator[_Node]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack += [v for values in node.fields.values() for v in values if isinstance(v, _Node)]


def _parsed(tree: str) -> _Node:
    """The values of a node's fields in order; lists are flattened."""
    top = _Node("")
    stack: list[tuple[_Node, str]] = [(top, "")]
    is_named = False
    for word in _TOKEN.findall(tree):
        node, name = stack[-1]
        if word == "{":
            inner = _Node("")
            node.fields.setdefault(name, []).append(inner)
            stack.append((inner, ""))
            is_named = False
        elif word == "}":
            stack.pop()
            is_named = True
        elif word in "()":
            continue
        elif not is_named and not node.name and node is not top:
            node.name = word
            is_named = True
        elif word.startswith(":"):
            stack[-1] = (node, word[1:])
            node.fields.setdefault(word[1:], [])
        else:
            node.fields.setdefault(name, []).append(word)
    return top
