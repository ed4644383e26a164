"""Scan, filter, project, inner join, UNION ALL: linear in every table occurrence.

With old = new - d for each changed occurrence, the delta of a query is a sum over the non-empty sets S of changed
occurrences:

    dQ = sum over S of (-1)^(|S|+1) * Q(d for the members of S, new for all others)
    d(A join B) = dA join B' + A' join dB - dA join dB

No term reads an old state, so PostgreSQL plans joins with the statistics of its own tables. One changed table gives one
term, two give three, three give seven. More than MAX_EXPANDED changed occurrences would give too many terms, so the sum
telescopes instead:

    dQ = sum over i of Q(old_1, .., old_i-1, d_i, new_i+1, .., new_n)
    d(A join B) = dA join B' + A join dB

`new` is the table in the snapshot of the refresh. `old` is the table at the last frontier: new minus the window, as
rows with weights. The weight of a joined row is the product of its members' weights; every row has weight +1 or -1.

    in:  SELECT a.x FROM a, b WHERE a.k = b.k          (a has changed)
    out: SELECT a.x, a.w FROM da AS a, b WHERE a.k = b.k

A union contributes to a term only the branch that has the term's deltas. Its other branches are present without rows,
because PostgreSQL derives the column types of a union from all branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, assert_never

from pgtrickle.model.flow import Window, weight_of
from pgtrickle.model.identifiers import buffer_copy_name, buffer_name, quote_ident
from pgtrickle.pipeline.plan.nodes import From, Linear, Scan, Select, UnionAll, scans
from pgtrickle.pipeline.plan.nodes import column_names as output_names

W = '"__pgt_w"'
Role = Literal["delta", "old", "new"]
MAX_EXPANDED = 3  # changed occurrences whose sets are taken one by one


@dataclass(frozen=True, slots=True)
class FixpointSteps:
    """The rows that a fixpoint computation has added to its working table since a step."""

    table: str
    since: int


@dataclass(frozen=True, slots=True)
class ChangedSource:
    """A source with changes in the window.

    `rows` is their exact number: as a LIMIT it tells PostgreSQL's planner how few they are. `is_copied`: the session
    reads a temporary copy, because it may not read the buffer.
    """

    relid: int
    window: Window | FixpointSteps
    rows: int
    is_copied: bool = False

    @property
    def images(self) -> str:
        """The changed rows, as `c`: a table and a condition."""
        match self.window:
            case FixpointSteps():
                return f"{self.window.table} AS c WHERE c.step >= {self.window.since}"
            case Window():
                copied = f'"pg_temp".{quote_ident(buffer_copy_name(self.relid))}'
                buffer = copied if self.is_copied else buffer_name(self.relid)
                return f"{buffer} AS c WHERE {self.window.predicate('c.xid')}"
            case _:
                assert_never(self.window)


@dataclass(frozen=True, slots=True)
class Term:
    """Which occurrences a term reads as deltas (none: the whole query in the new state), and what has changed.

    `old_before`: changed occurrences with a smaller number are read in the old state. `as_of`: all changed occurrences
    are; for a table and its alias it returns rows and a condition on them, which together are the old state.
    """

    deltas: frozenset[int]
    changed: Mapping[int, ChangedSource]
    old_before: int = 0
    as_of: Callable[[Scan, str], tuple[str, str]] | None = None


NOW = Term(frozenset(), {})


@dataclass(frozen=True, slots=True)
class Rendered:
    sql: str
    weighted: bool


def role(scan: Scan, term: Term) -> Role:
    """How a term reads an occurrence: as its delta, in the old state or in the new state."""
    if scan.occurrence in term.deltas:
        return "delta"
    is_changed = scan.relation.relid in term.changed
    return "old" if is_changed and (term.as_of or scan.occurrence < term.old_before) else "new"


def sign(term: Term) -> int:
    """(-1)^(|S|+1): sets with an even number of deltas are subtracted (inclusion and exclusion)."""
    return -1 if term.deltas and len(term.deltas) % 2 == 0 else 1


def contributing(node: UnionAll, term: Term) -> tuple[Select | UnionAll, ...]:
    """The branches of a union that have rows in this term: none when its deltas are in several branches."""
    holding = tuple(b for b in node.branches if any(s.occurrence in term.deltas for s in scans(b)))
    if not holding:
        return node.branches
    return holding if len(holding) == 1 else ()


def delta_terms(node: Linear, changed: Mapping[int, ChangedSource]) -> list[Term]:
    """The terms whose sum is the delta of the query."""
    occurrences = [s.occurrence for s in scans(node) if s.relation.relid in changed]
    if len(occurrences) > MAX_EXPANDED:
        return [Term(frozenset({o}), changed, old_before=o) for o in occurrences]
    sets = [frozenset(c) for size in range(1, len(occurrences) + 1) for c in combinations(occurrences, size)]
    return [Term(s, changed) for s in sets if _can_be_joined(node, s)]


def _can_be_joined(node: Linear, together: frozenset[int]) -> bool:
    """Whether one output row can come from all these occurrences: not when they are in several branches of a union."""
    match node:
        case Scan():
            return True
        case UnionAll():
            holding = [b for b in node.branches if any(s.occurrence in together for s in scans(b))]
            return len(holding) <= 1 and all(_can_be_joined(b, together) for b in holding)
        case Select():
            return node.source is None or all(_can_be_joined(m.node, together) for m in node.source.members)
        case _:
            assert_never(node)


def shared_delta_rows(node: Linear, term: Term) -> dict[str, str]:
    """The delta rows of the term, by name. Their number as LIMIT makes PostgreSQL start joins from them."""
    names = {}
    for scan in scans(node):
        reads = role(scan, term)
        if reads == "delta" or (reads == "old" and term.as_of is None):
            change = term.changed[scan.relation.relid]
            rows = window_rows(scan, change, negate=reads == "old" or _is_negated(scan, term))
            names[_rows_name(scan, term)] = f"{rows} LIMIT {change.rows}"
    return names


def _is_negated(scan: Scan, term: Term) -> bool:
    """The sign of a term is that of its first delta."""
    return scan.occurrence == min(term.deltas) and sign(term) < 0


def _rows_name(scan: Scan, term: Term) -> str:
    """The name of the window's rows, as they are or negated: old = new + negated window."""
    is_negated = scan.occurrence not in term.deltas or _is_negated(scan, term)
    return f'"__pgt_{"n" if is_negated else "d"}{scan.occurrence}"'


def render(node: Linear, term: Term, names: Sequence[str] | None = None) -> Rendered:
    match node:
        case Scan():
            return _scan(node, term)
        case UnionAll():
            return _union(node, term, names)
        case Select():
            output_names = names if names is not None else [i.name for i in node.items]
            items = [f"{i.sql} AS {quote_ident(n)}" for i, n in zip(node.items, output_names, strict=True)]
            return select(items, node.source, node.where, term)
        case _:
            assert_never(node)


def select(items: Sequence[str], source: From | None, where: str | None, term: Term) -> Rendered:
    """A SELECT over these members; the weight of a row is the product of the members' weights."""
    text, weights = "", []
    if source is not None:
        rendered = []
        for m in source.members:
            if isinstance(m.node, Scan) and term.as_of is not None and role(m.node, term) == "old":
                rows, condition = term.as_of(m.node, m.alias)
                rendered.append(Rendered(rows, False))
                where = f"({where}) AND {condition}" if where is not None else condition
            else:
                rendered.append(render(m.node, term))
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
        names = output_names(node)
    filled = contributing(node, term)
    rendered = [render(b, term if b in filled else NOW, names) for b in node.branches]
    weighted = any(r.weighted for r in rendered)
    texts = []
    for branch, r in zip(node.branches, rendered, strict=True):
        weight = f", 1 AS {W}" if weighted and not r.weighted else ""
        empty = "" if branch in filled else " WHERE false"
        texts.append(f'(SELECT "q".*{weight} FROM ({r.sql}) AS "q"{empty})' if weight or empty else f"({r.sql})")
    return Rendered(" UNION ALL ".join(texts), weighted)


def _scan(scan: Scan, term: Term) -> Rendered:
    reads = role(scan, term)
    if reads == "delta":
        return Rendered(f"SELECT * FROM {_rows_name(scan, term)}", True)
    table_name = f"{quote_ident(scan.relation.schema)}.{quote_ident(scan.relation.name)}"
    by_number = {c.attnum: c.name for c in scan.relation.columns}
    columns = [f"t.{quote_ident(by_number[attnum])} AS {quote_ident(name)}" for attnum, name in scan.exposes] or [
        "1 AS __pgt_one"
    ]
    if reads == "new":
        return Rendered(f"SELECT {', '.join(columns)} FROM {table_name} AS t", False)
    table = f"SELECT {', '.join(columns)}, 1 AS {W} FROM {table_name} AS t"
    # As a subquery of its own: PostgreSQL reads both arms by the keys of a join only then.
    window = f"SELECT * FROM (SELECT * FROM {_rows_name(scan, term)} OFFSET 0) AS w"
    return Rendered(f"{table} UNION ALL {window}", True)


def window_rows(scan: Scan, change: ChangedSource, *, negate: bool) -> str:
    columns = [f"c.c{attnum} AS {quote_ident(name)}" for attnum, name in scan.exposes] or ["1 AS __pgt_one"]
    columns.append(f"{weight_of('c', negated=negate)} AS {W}")
    return f"SELECT {', '.join(columns)} FROM {change.images} AND c.action <> 'T'"
