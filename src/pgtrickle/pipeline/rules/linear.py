"""Scan, filter, project, inner join, UNION ALL: linear in every table occurrence.

Telescoping, for occurrences 1..n of the query Q:

    dQ = sum over i of Q(old_1, .., old_i-1, d_i, new_i+1, .., new_n)

`new` is the table as the refresh's snapshot sees it. `old` is as_of the last frontier: new minus the window, as rows
with weights. The weight of a joined row is the product of its members' weights; every row here has weight +1 or -1. A
union contributes to term i only the branch that holds occurrence i; its other branches stand there without rows, for
the types that PostgreSQL gives the columns of a union.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pgtrickle.model.flow import Window
from pgtrickle.pipeline.nodes import From, Linear, Scan, Select, UnionAll, scans
from pgtrickle.pipeline.sqltext import quote

W = '"__pgt_w"'
Role = Literal["delta", "old", "new"]


@dataclass(frozen=True, slots=True)
class Changed:
    """A source with changes in the window.

    `rows` is their exact number, which tells PostgreSQL's planner how small it is.
    """

    relid: int
    window: Window
    rows: int


@dataclass(frozen=True, slots=True)
class Term:
    """Which occurrence is the delta (None: evaluate everything new), and what has changed.

    `as_of`: evaluate everything old instead, each table as the plain bag of rows that it was before the windows.
    """

    delta: int | None
    changed: Mapping[int, Changed]
    as_of: bool = False


@dataclass(frozen=True, slots=True)
class Rendered:
    sql: str
    weighted: bool


def buffer_name(relid: int) -> str:
    return f'"pgtrickle_changes"."changes_{relid}"'


def role(scan: Scan, term: Term) -> Role:
    """How term i reads an occurrence: itself as its changes, those before it as they were, those after as they are."""
    if scan.occurrence == term.delta:
        return "delta"
    change = term.changed.get(scan.relation.relid)
    is_before = term.as_of or (term.delta is not None and scan.occurrence < term.delta)
    return "old" if change is not None and is_before else "new"


def contributing(node: UnionAll, term: Term) -> tuple[Select | UnionAll, ...]:
    """The branches of a union that have rows in this term."""
    holding = tuple(b for b in node.branches if any(s.occurrence == term.delta for s in scans(b)))
    return holding or node.branches


def deltas(node: Linear, changed: Mapping[int, Changed]) -> list[Term]:
    """One term for each occurrence of a changed table."""
    return [Term(s.occurrence, changed) for s in scans(node) if s.relation.relid in changed]


def with_clause(node: Linear, term: Term) -> str:
    """The changed rows of the term's delta, materialised, with their number as a limit: joins start from them."""
    if term.delta is None:
        return ""
    scan = next(s for s in scans(node) if s.occurrence == term.delta)
    change = term.changed[scan.relation.relid]
    return f'WITH "__pgt_d" AS MATERIALIZED ({_window_rows(scan, change, negate=False)} LIMIT {change.rows}) '


def render(node: Linear, term: Term, names: Sequence[str] | None = None) -> Rendered:
    if isinstance(node, Scan):
        return _scan(node, term)
    if isinstance(node, UnionAll):
        return _union(node, term, names)
    wanted = names if names is not None else [i.name for i in node.items]
    items = [f"{i.sql} AS {quote(n)}" for i, n in zip(node.items, wanted, strict=True)]
    return select(items, node.source, node.where, term)


def select(items: Sequence[str], source: From | None, where: str | None, term: Term) -> Rendered:
    """A SELECT over these members; its weight is the product of theirs."""
    text, weights = "", []
    if source is not None:
        rendered = [render(m.node, term) for m in source.members]
        aliases = [m.alias for m in source.members]
        weights = [f"{a}.{W}" for a, r in zip(aliases, rendered, strict=True) if r.weighted]
        places = [p if isinstance(p, str) else f"({rendered[p].sql}) AS {aliases[p]}" for p in source.parts]
        text = " FROM " + "".join(places)
    columns = list(items)
    if weights:
        columns.append(" * ".join(weights) + f" AS {W}")
    condition = f" WHERE {where}" if where is not None else ""
    return Rendered(f"SELECT {', '.join(columns)}{text}{condition}", bool(weights))


def _union(node: UnionAll, term: Term, names: Sequence[str] | None) -> Rendered:
    if names is None:
        names = _names(node)
    filled = contributing(node, term)
    rendered = [render(b, term if b in filled else Term(None, {}), names) for b in node.branches]
    weighted = any(r.weighted for r in rendered)
    texts = []
    for branch, r in zip(node.branches, rendered, strict=True):
        weight = f", 1 AS {W}" if weighted and not r.weighted else ""
        empty = "" if branch in filled else " WHERE false"
        texts.append(f'(SELECT "q".*{weight} FROM ({r.sql}) AS "q"{empty})' if weight or empty else f"({r.sql})")
    return Rendered(" UNION ALL ".join(texts), weighted)


def _names(node: Linear) -> list[str]:
    if isinstance(node, UnionAll):
        return _names(node.branches[0])
    if isinstance(node, Select):
        return [i.name for i in node.items]
    return [name for _, name in node.exposes]


def _scan(scan: Scan, term: Term) -> Rendered:
    reads = role(scan, term)
    if reads == "delta":
        return Rendered('SELECT * FROM "__pgt_d"', True)
    now = f"{quote(scan.relation.schema)}.{quote(scan.relation.name)}"
    by_number = {c.attnum: c.name for c in scan.relation.columns}
    columns = [f"t.{quote(by_number[attnum])} AS {quote(name)}" for attnum, name in scan.exposes] or ["1 AS __pgt_one"]
    if reads == "new":
        return Rendered(f"SELECT {', '.join(columns)} FROM {now} AS t", False)
    change = term.changed[scan.relation.relid]
    if term.as_of:
        return Rendered(_as_of(scan, change, now, columns), False)
    table = f"SELECT {', '.join(columns)}, 1 AS {W} FROM {now} AS t"
    return Rendered(f"{table} UNION ALL {_window_rows(scan, change, negate=True)}", True)


def _as_of(scan: Scan, change: Changed, now: str, columns: Sequence[str]) -> str:
    """The table before the window as plain rows: weights summed, what is left repeated.

    Rows are matched by their text: not every type has an equality, and 1.0 must not stand for 1.00.
    """
    types = {c.attnum: c.type for c in scan.relation.columns}
    named = [(quote(name), types[attnum]) for attnum, name in scan.exposes] or [("__pgt_one", "int4")]
    texts = ", ".join(f"b.{name}::text" for name, _ in named)
    listed = ", ".join(name for name, _ in named)
    typed = ", ".join(f"n.{name}::{type_} AS {name}" for name, type_ in named)
    both = f"SELECT {', '.join(columns)}, 1 AS {W} FROM {now} AS t UNION ALL {_window_rows(scan, change, negate=True)}"
    net = f"SELECT {texts}, sum(b.{W}) FROM ({both}) AS b GROUP BY {texts} HAVING sum(b.{W}) > 0"
    return f"SELECT {typed} FROM ({net}) AS n({listed}, {W}), generate_series(1, n.{W})"


def _window_rows(scan: Scan, change: Changed, *, negate: bool) -> str:
    columns = [f"c.c{attnum} AS {quote(name)}" for attnum, name in scan.exposes] or ["1 AS __pgt_one"]
    plus = "D" if negate else "I"
    columns.append(f"CASE c.action WHEN '{plus}' THEN 1 ELSE -1 END AS {W}")
    where = change.window.predicate("c.xid")
    return f"SELECT {', '.join(columns)} FROM {buffer_name(scan.relation.relid)} AS c WHERE {where} AND c.action <> 'T'"
