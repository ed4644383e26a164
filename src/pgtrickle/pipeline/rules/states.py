"""A plan as SQL over its tables as they are, as they were, or some of each.

What several places of a statement need is said once, in WITH, materialised: the changed rows of a source, what a table
has to give back to be as it was, keys, the change of a subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pgtrickle.pipeline.carriers import encoded
from pgtrickle.pipeline.nodes import (
    Block,
    Concat,
    Constant,
    Distinct,
    Node,
    Part,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Sub,
    Text,
    Tree,
    UnionAll,
    names,
    scans,
)
from pgtrickle.pipeline.rules import linear
from pgtrickle.pipeline.rules.linear import NOW, Changed, Rendered, Term, W
from pgtrickle.pipeline.sqltext import quote

NEW, OLD = "new", "old"
DELTA, BEFORE = "delta", "before"  # of a part: its change; what it was, as what it is minus its change


@dataclass(frozen=True, slots=True)
class View:
    """How parts of FROM are read: by number where it is said, else all alike."""

    default: str
    special: Mapping[int, str] = field(default_factory=dict)

    def of(self, part: Part) -> str:
        return self.special.get(part.number, self.default)


ALL_NEW, ALL_OLD = View(NEW), View(OLD)


class Statement:
    """One statement in the making: what has changed, and what stands in its WITH."""

    def __init__(self, changed: Mapping[int, Changed], delta: Callable[[Statement, Node], str]) -> None:
        self.changed = changed
        self.shared: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._delta = delta

    def share(self, sql: str, prefix: str) -> str:
        """The name under which the rows of `sql` can be read, the same for the same text."""
        if sql not in self._names:
            self._names[sql] = f'"__pgt_s{prefix}{len(self._names)}"'
            self.shared[self._names[sql]] = sql
        return self._names[sql]

    def delta_of(self, node: Node) -> str:
        """The name of a plan's signed changes: its columns, then the weight."""
        return self._delta(self, node)

    def with_clause(self) -> str:
        return f"WITH {', '.join(f'{n} AS MATERIALIZED ({s})' for n, s in self.shared.items())} " if self.shared else ""

    def is_changed(self, node: Node) -> bool:
        return any(s.relation.relid in self.changed for s in scans(node))

    # -- plans
    # ----------------------------------------------------------------------------------------------------------

    def render(self, node: Node, view: View) -> str:
        """The rows of a plan, without weights."""
        if view.default == OLD and not view.special and not self.is_changed(node):
            view = ALL_NEW
        if isinstance(node, Scan):
            return self._scan(node, view.default)
        if isinstance(node, Select | UnionAll):
            term = NOW if view.default == NEW else Term(frozenset(), self.changed, as_of=self.scan_as_of)
            return linear.render(node, term).sql
        if isinstance(node, Block):
            return self.block(node, view).sql
        if isinstance(node, Distinct):
            return f"SELECT DISTINCT q.* FROM ({self.render(node.node, view)}) AS q"
        if isinstance(node, Concat):
            return " UNION ALL ".join(f"({self.render(b, view)})" for b in node.branches)
        if isinstance(node, SetOperation):
            return f"({self.render(node.left, view)}) {node.word} ({self.render(node.right, view)})"
        if isinstance(node, Recursive):
            listed = ", ".join(quote(n) for n in node.names)
            shown = ", ".join(f"r.{quote(n)} AS {quote(s)}" for n, s in zip(node.names, node.shown, strict=True))
            first, step = self.render(node.first, view), self.render(node.step, view)
            body = f"{node.name}({listed}) AS (({first}) {node.word} ({step}))"
            return f"WITH RECURSIVE {body} SELECT {shown} FROM {node.name} AS r"
        return constant(node)

    def block(self, node: Block, view: View, *, conditions: Sequence[str] = (), sign: int | None = None) -> Rendered:
        """`conditions` are added to WHERE; `sign` is a factor of the weight, or all of it where no part has one."""
        weights: list[str] = []
        source = ", ".join(self.tree(t, view, weights) for t in node.trees)
        columns = [f"{self.text(c.text, view)} AS {quote(c.name)}" for c in node.columns]
        if sign == -1 or (sign is not None and not weights):
            weights.append(str(sign))
        if weights:
            columns.append(f"{' * '.join(weights)} AS {W}")
        where = [f"({self.text(node.where, view)})"] if node.where is not None else []
        where += conditions
        head = "SELECT "
        if node.distinct_on is not None:
            head += f"DISTINCT ON ({self.text(node.distinct_on, view)}) "
        sql = head + ", ".join(columns)
        sql += f" FROM {source}" if source else ""
        sql += f" WHERE {' AND '.join(where)}" if where else ""
        return Rendered(sql + self.text(node.tail, view), bool(weights))

    def tree(self, tree: Tree, view: View, weights: list[str]) -> str:
        if isinstance(tree, Part):
            return self.part(tree, view, weights)
        left, right = self.tree(tree.left, view, weights), self.tree(tree.right, view, weights)
        return joined(tree.kind, left, right, self.text(tree.on, view) if tree.on is not None else None, tree.using)

    def part(self, part: Part, view: View, weights: list[str]) -> str:
        if part.node is None:
            return self.text(part.call, view)
        role = view.of(part)
        if part.is_lateral:
            return f"LATERAL ({self.render(part.node, View(role, view.special))}) AS {part.alias}"
        if role in (DELTA, BEFORE):
            weights.append(f"{part.alias}.{W}")
        if role == DELTA:
            return f"(SELECT * FROM {self.delta_of(part.node)}) AS {part.alias}"
        if role == BEFORE:
            listed = ", ".join(f"q.{quote(n)}" for n in names(part.node))
            now = f"SELECT {listed}, 1 AS {W} FROM ({self.render(part.node, ALL_NEW)}) AS q"
            gone = f"SELECT {listed}, -q.{W} FROM {self.delta_of(part.node)} AS q"
            return f"({now} UNION ALL {gone}) AS {part.alias}"
        return f"({self.render(part.node, ALL_NEW if role == NEW else ALL_OLD)}) AS {part.alias}"

    def text(self, text: Text, view: View) -> str:
        return "".join(self.render(p.node, view) if isinstance(p, Sub) else p for p in text)

    # -- tables
    # ----------------------------------------------------------------------------------------------------------

    def _scan(self, scan: Scan, state: str) -> str:
        if state == OLD and scan.relation.relid in self.changed:
            return self.scan_as_of(scan)
        return linear.render(scan, NOW).sql

    def scan_as_of(self, scan: Scan) -> str:
        """The table before the window: what it has now but for what came, and what went.

        Rows are matched by their text: not every type has an equality, and 1.0 must not stand for 1.00. A key of the
        table helps to find rows, but nothing rests on it: of equal rows of which some came, the others are given back.
        """
        change = self.changed[scan.relation.relid]
        by_number = {c.attnum: c for c in scan.relation.columns}
        columns = [a for a, _ in scan.exposes]
        texts = encoded([f"c.c{a}::text" for a in columns])
        signed = "sum(CASE c.action WHEN 'I' THEN 1 ELSE -1 END)"
        window = f"{change.window.predicate('c.xid')} AND c.action <> 'T'"
        buffer = f"{linear.buffer_name(scan.relation.relid)} AS c WHERE {window}"
        net = self.share(f"SELECT {texts} AS r, {signed} AS n FROM {buffer} GROUP BY 1 HAVING {signed} <> 0", "w")
        now = f"{quote(scan.relation.schema)}.{quote(scan.relation.name)} AS t"
        row = encoded([f"t.{quote(by_number[a].name)}::text" for a in columns])
        typed = [f"(b.r::text[])[{i}]::{by_number[a].type} AS c{a}" for i, a in enumerate(columns, start=1)]
        match = [
            f"t.{quote(by_number[a].name)} = (w.r::text[])[{columns.index(a) + 1}]::{by_number[a].type}"
            for a in scan.key
        ]
        kept = (
            f"SELECT w.r, count(*) - w.n AS n FROM {net} AS w JOIN {now} ON {' AND '.join([*match, f'{row} = w.r'])} "
            f"WHERE w.n > 0 GROUP BY w.r, w.n"
        )
        gone = f"SELECT w.r, -w.n AS n FROM {net} AS w WHERE w.n < 0"
        back = self.share(
            f"SELECT {', '.join(typed) or '1 AS one'} FROM ({gone} UNION ALL {kept}) AS b, generate_series(1, b.n)", "b"
        )
        shown = [f"t.{quote(by_number[a].name)} AS {quote(n)}" for a, n in scan.exposes] or ["1 AS __pgt_one"]
        given = [f"b.c{a} AS {quote(n)}" for a, n in scan.exposes] or ["1 AS __pgt_one"]
        return (
            f"SELECT {', '.join(shown)} FROM {now} WHERE NOT ({row} IN (SELECT w.r FROM {net} AS w WHERE w.n > 0)) "
            f"UNION ALL SELECT {', '.join(given)} FROM {back} AS b"
        )


def joined(kind: str, left: str, right: str, on: str | None, using: str | None) -> str:
    condition = f" ON {on}" if on is not None else f" USING {using}" if using is not None else ""
    return f"({left} {kind} {right}{condition})"


def constant(node: Constant) -> str:
    listed = ", ".join(quote(n) for n in node.names)
    return f"SELECT * FROM ({node.sql}) AS v({listed})"
