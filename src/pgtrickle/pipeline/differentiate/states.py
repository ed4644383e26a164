"""A plan as SQL over its tables as they are, as they were, or some of each.

What several places of a statement need is said once, in WITH, materialised: the changed rows of a source, what a table
has to give back to be as it was, keys, the change of a subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import row_text
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.as_of import apart, as_of, netted
from pgtrickle.pipeline.differentiate.invertible import invertible_groups
from pgtrickle.pipeline.differentiate.linear import NOW, ChangedSource, Rendered, Term, W
from pgtrickle.pipeline.plan.keyed import Keyed, is_all, keyed_by, where_also
from pgtrickle.pipeline.plan.names import below, conjuncts, free, qualified
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Join,
    Node,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Sub,
    Text,
    Tree,
    UnionAll,
    Values,
    names,
    parts,
    scans,
    subs,
    texts,
)

NEW, OLD = "new", "old"
# Changes up to which groups behind IN are asked for one by one, each looking through all that the changes have to give
# back; and up to which they are where it is not known what the changes ask for: all groups would be computed else.
FEWEST_ROWS = 200
FEW_ROWS = 2_000
DELTA, BEFORE = "delta", "before"  # of a part: its change; what it was, as what it is minus its change
KEPT, UNDONE = (
    "kept",
    "undone",
)  # of a part: as it is, evaluated once; as it was, from that and its change, without weights


@dataclass(frozen=True, slots=True)
class View:
    """How parts of FROM are read: by number where it is said, else all alike.

    `only`: of an old table, by number, columns and a query of the keys that are wanted. `is_apart`: conditions stand
    above the changes of a part, not on them: PostgreSQL takes it for free to evaluate those each time that it reads
    them again.
    """

    default: str
    special: Mapping[int, str] = field(default_factory=dict)
    only: Mapping[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    is_apart: bool = False

    def of(self, part: FromItem) -> str:
        return self.special.get(part.number, self.default)


ALL_NEW, ALL_OLD = View(NEW), View(OLD)


@dataclass(frozen=True, slots=True)
class DecorrelatedSubquery:
    """Of a subquery that each row asks: what to join to FROM, and what stands in the subquery's place then."""

    source: str
    sql: str


class Statement:
    """One statement in the making: what has changed, and what stands in its WITH."""

    def __init__(
        self,
        changed: Mapping[int, ChangedSource],
        delta: Callable[[Statement, Node], str],
        asked: Callable[[Statement, Node, FromItem], str | None] | None = None,
        answers: Callable[[Statement, Block, Sub, View, str], DecorrelatedSubquery | None] | None = None,
    ) -> None:
        """Without `asked` and `answers` each old state is evaluated as it is, and not from a new one and changes."""
        self.changed = changed
        self.rows = sum(c.rows for c in changed.values())
        self._asked = asked
        self._answers = answers
        self.shared: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._wholes: dict[str, str] = {}  # plans over tables as they are, evaluated once and all of it: text, name
        self._chosen: dict[str, tuple[str, Callable[[str], str]]] = {}  # some rows of a plan: its text, how to choose
        self._delta = delta

    def share(self, sql: str, prefix: str) -> str:
        """The name under which the rows of `sql` can be read, the same for the same text."""
        if sql not in self._names:
            self._names[sql] = f'"__pgt_s{prefix}{len(self._names)}"'
            self.shared[self._names[sql]] = sql
        return self._names[sql]

    def share_whole(self, sql: str) -> str:
        """The same for all rows of a plan that names tables alone."""
        return self._wholes.setdefault(sql, f'"__pgt_sw{len(self._wholes)}w"')

    def share_some(self, sql: str, whole: str, chosen: Callable[[str], str]) -> str:
        """The same for some rows of a plan, `whole`. Where all are needed anyway, these are chosen from them."""
        name = self.share(sql, "s")
        self._chosen[name] = (whole, chosen)
        return name

    def delta_of(self, node: Node) -> str:
        """The name of a plan's signed changes: its columns, then the weight."""
        return self._delta(self, node)

    def with_clause(self) -> str:
        found = {name: sql for sql, name in self._wholes.items()}
        for name, sql in self.shared.items():
            whole, chosen = self._chosen.get(name, ("", None))
            found[name] = chosen(self._wholes[whole]) if chosen is not None and whole in self._wholes else sql
        return f"WITH {', '.join(f'{n} AS MATERIALIZED ({s})' for n, s in found.items())} " if found else ""

    def is_changed(self, node: Node) -> bool:
        return any(s.relation.relid in self.changed for s in scans(node))

    # -- plans
    # ----------------------------------------------------------------------------------------------------------

    def render(self, node: Node, view: View) -> str:
        """The rows of a plan, without weights."""
        if view.default == OLD and not view.special and not self.is_changed(node):
            view = ALL_NEW
        match node:
            case Scan():
                return self._scan(node, view.default)
            case Select() | UnionAll():
                term = NOW if view.default == NEW else Term(frozenset(), self.changed, as_of=self.scan_as_of)
                return linear.render(node, term).sql
            case Block():
                return self.block(node, view).sql
            case Distinct():
                return f"SELECT DISTINCT q.* FROM ({self.render(node.node, view)}) AS q"
            case Concat():
                return " UNION ALL ".join(f"({self.render(b, view)})" for b in node.branches)
            case SetOperation():
                return f"({self.render(node.left, view)}) {node.word} ({self.render(node.right, view)})"
            case Recursive():
                return self._recursive(node, view)
            case Values():
                return constant(node)
            case _:
                assert_never(node)

    def _recursive(self, node: Recursive, view: View) -> str:
        listed = ", ".join(quote_ident(n) for n in node.names)
        shown = ", ".join(
            f"r.{quote_ident(n)} AS {quote_ident(s)}" for n, s in zip(node.names, node.shown, strict=True)
        )
        first, step = self.render(node.first, view), self.render(node.step, view)
        body = f"{node.name}({listed}) AS (({first}) {node.word} ({step}))"
        return f"WITH RECURSIVE {body} SELECT {shown} FROM {node.name} AS r"

    def block(
        self,
        node: Block,
        view: View,
        *,
        conditions: Sequence[str] = (),
        sign: int | None = None,
        asked: Callable[[Sub], str | None] | None = None,
    ) -> Rendered:
        """`conditions` are added to WHERE; `sign` is a factor of the weight, or all of it where no part has one.

        `asked` gives a query of all keys that the block asks a subquery behind IN for, if these are few.
        """
        weights: list[str] = []
        open_conditions: list[str] = []
        required = conjuncts(node.where) if node.where is not None else []
        if self.is_costly(required):
            view = replace(view, is_apart=True)
        items = [self.tree(t, view, weights, open_conditions) for t in node.trees]
        columns = [f"{self.text(c.text, view)} AS {quote_ident(c.name)}" for c in node.columns]
        if sign == -1 or (sign is not None and not weights):
            weights.append(str(sign))
        if weights:
            columns.append(f"{' * '.join(weights)} AS {W}")
        joins: list[str] = []
        where = [f"({self.condition(node, c, view, joins, asked)})" for c in required]
        where += [*conditions, *open_conditions]
        source = from_items(items, joins)
        head = "SELECT "
        if node.distinct_on is not None:
            head += f"DISTINCT ON ({self.text(node.distinct_on, view)}) "
        sql = head + ", ".join(columns)
        sql += f" FROM {source}" if source else ""
        sql += f" WHERE {' AND '.join(where)}" if where else ""
        return Rendered(sql + self.text(node.tail, view), bool(weights))

    def tree(self, tree: Tree, view: View, weights: list[str], where: list[str] | None = None) -> str:
        """`where` takes conditions that belong to parts, if a condition there is as good as one on the part itself."""
        match tree:
            case FromItem():
                return self.part(tree, view, weights, where)
            case Join():
                return self._join(tree, view, weights, where)
            case _:
                assert_never(tree)

    def _join(self, tree: Join, view: View, weights: list[str], where: list[str] | None) -> str:
        sides = []
        on: list[str] | None = None if tree.on is None and tree.kind != "CROSS JOIN" else []
        for side, is_preserved in ((tree.left, tree.kind != "RIGHT JOIN"), (tree.right, tree.kind != "LEFT JOIN")):
            if tree.kind == "FULL JOIN":
                place = None
            elif tree.kind in ("JOIN", "CROSS JOIN"):
                place = where if where is not None else on
            elif is_preserved:
                place = where
            else:
                place = on if isinstance(side, FromItem) else None
            sides.append(self.tree(side, view, weights, place))
        condition = self.text(tree.on, view) if tree.on is not None else None
        if on:
            condition = " AND ".join([*([f"({condition})"] if condition is not None else []), *on])
        kind = "JOIN" if tree.kind == "CROSS JOIN" and condition is not None else tree.kind
        return joined(kind, sides[0], sides[1], condition, tree.using)

    def part(self, part: FromItem, view: View, weights: list[str], where: list[str] | None = None) -> str:
        if part.node is None:
            return self.text(part.call, view)
        role = view.of(part)
        if part.is_lateral:
            return f"LATERAL ({self.render(part.node, View(role, view.special))}) AS {part.alias}"
        if role in (DELTA, BEFORE):
            weights.append(f"{part.alias}.{W}")
        if role == DELTA:
            changes = self.delta_of(part.node)
            return f"{apart(changes) if view.is_apart else f'(SELECT * FROM {changes})'} AS {part.alias}"
        if role == BEFORE:
            listed = ", ".join(f"q.{quote_ident(n)}" for n in names(part.node))
            now = f"SELECT {listed}, 1 AS {W} FROM ({self.render(part.node, ALL_NEW)}) AS q"
            gone = f"SELECT {listed}, -q.{W} FROM {apart(self.delta_of(part.node))} AS q"
            return f"({now} UNION ALL {gone}) AS {part.alias}"
        if role in (KEPT, UNDONE):
            kept = self.share(self._all(part.node), "n")
            return f"({self._undone(part.node, kept) if role == UNDONE else f'SELECT * FROM {kept}'}) AS {part.alias}"
        is_old = role == OLD and self.is_changed(part.node)
        if not is_old and isinstance(part.node, Block) and self._is_evaluated(part.node):
            return f"(SELECT * FROM {self.share(self._all(part.node), 'n')}) AS {part.alias}"
        if is_old and where is not None and isinstance(part.node, Scan):
            only = view.only.get(part.number)
            rows, condition = self.scan_as_of(part.node, part.alias, only=only)
            where.append(condition)
            return f"({rows}) AS {part.alias}"
        return f"({self.render(part.node, ALL_OLD if is_old else ALL_NEW)}) AS {part.alias}"

    def is_costly(self, conditions: Sequence[Text]) -> bool:
        """Whether many changes meet conditions of which each row evaluates a query."""
        return self.rows > FEWEST_ROWS and any(subs(c) for c in conditions)

    def condition(
        self,
        node: Block,
        condition: Text,
        view: View,
        joins: list[str],
        asked: Callable[[Sub], str | None] | None = None,
    ) -> str:
        """A condition of a block that must hold. `x IN (groups)` is asked for what x can be where an index finds its
        rows: for few one by one; for many all at once, as each of those would look through all that a table has to
        give back. So are values that each row asks for: `joins` takes what is to be joined to FROM for them.

        PostgreSQL would compute all groups.
        """
        changes = self.rows
        if changes and len(condition) == 3 and isinstance(sub := condition[1], Sub):
            keyed = keyed_by(sub) if is_all(condition, sub) else None
            if keyed is not None:
                keys = asked(sub) if asked is not None and changes > FEWEST_ROWS else None
                if keys is not None:
                    return f"{condition[0]}{self._only(keyed, keys, view)}{condition[2]}"
                test = qualified(node, sub.test) if sub.test is not None and changes <= FEW_ROWS else None
                if test is not None:
                    return f"EXISTS ({self.render(where_also(keyed, f'({keyed.key} = {test})'), view)})"
        return self.looked_up(node, condition, view, joins)

    def looked_up(self, node: Block, text: Text, view: View, joins: list[str]) -> str:
        """A condition over a block's FROM: what many rows ask for is joined to that."""
        return "".join(self._asked_at_once(node, p, view, joins) if isinstance(p, Sub) else p for p in text)

    def _asked_at_once(self, node: Block, sub: Sub, view: View, joins: list[str]) -> str:
        found = None
        if self._answers is not None and self.rows > FEWEST_ROWS:
            found = self._answers(self, node, sub, view, f'"__pgt_l{len(joins)}"')
        if found is None:
            return self.sub(sub, view)
        joins.append(found.source)
        return found.sql

    def _only(self, groups: Keyed, keys: str, view: View) -> str:
        """Those of the groups that have one of these keys."""
        among = f"({groups.key} IN ({keys}))"
        if view.of(groups.part) != OLD or groups.part not in groups.block.trees:
            return self.render(where_also(groups, among), view)
        return self.render(groups.block, replace(view, only={groups.part.number: ((groups.attnum,), keys)}))

    def text(self, text: Text, view: View) -> str:
        return "".join(self.sub(p, view) if isinstance(p, Sub) else p for p in text)

    def sub(self, sub: Sub, view: View) -> str:
        """A subquery of an expression. A value that is the same for all rows is evaluated once for the statement.

        One that each row asks for is as it is where no change has the keys that it asks with: to look for what a
        table was means to look through all that it has to give back.
        """
        if sub.kind != "scalar" or not self.changed or self._asked is None:
            return self.render(sub.node, view)
        changed = [p for p in below(sub.node) if p.node is not None and self.is_changed(p.node)]
        states = {view.of(p) for p in changed}
        if free(sub.node):
            asked = self._asked(self, sub.node, changed[0]) if len(changed) == 1 and states == {OLD} else None
            if asked is None:
                return self.render(sub.node, view)
            now = View(view.default, {**view.special, changed[0].number: NEW})
            answers = self.render(sub.node, view), self.render(sub.node, now)
            return f"SELECT CASE WHEN {asked} THEN ({answers[0]}) ELSE ({answers[1]}) END"
        if changed and states not in ({NEW}, {OLD}):
            return self.render(sub.node, view)
        state = OLD if OLD in states else NEW
        groups = _groups(self, sub.node, changed)
        if groups is not None:
            seen = View(NEW, {groups.number: KEPT if state == NEW else UNDONE})
        else:
            seen = ALL_OLD if state == OLD else ALL_NEW
        return f"SELECT v.v FROM {self.share(f'SELECT ({self.render(sub.node, seen)}) AS v', 'v')} AS v"

    def _all(self, node: Node) -> str:
        """All rows of a plan as it is; groups that can be undone from their numbers, which their change needs too."""
        groups = invertible_groups(node) if isinstance(node, Block) else None
        if groups is None or not groups.stands_alone:
            return self.render(node, ALL_NEW)
        return groups.shown("", self.share_whole(self.block(groups.numbers, ALL_NEW).sql))

    def _is_evaluated(self, node: Block) -> bool:
        """Whether all groups of a block are there already."""
        groups = invertible_groups(node) if self._wholes else None
        return groups is not None and self.block(groups.numbers, ALL_NEW).sql in self._wholes

    def _undone(self, node: Node, kept: str) -> str:
        """What a plan was, from what it is and its change: each weight of that is 1 or -1.

        Rows are told apart by their texts: not every type has an equality, and 1.0 must not stand for 1.00.
        """
        columns = [f"q.{quote_ident(n)}" for n in names(node)]
        listed, row = ", ".join(columns), row_text(columns)
        change = self.delta_of(node)
        touched = self.share(f"SELECT DISTINCT {row} AS r FROM {change} AS q", "t")
        among = f"({row} IN (SELECT t.r FROM {touched} AS t))"
        signed = (
            f"SELECT {listed}, {row} AS __pgt_r, 1 AS __pgt_n FROM {kept} AS q WHERE {among} "
            f"UNION ALL SELECT {listed}, {row}, -q.{W} FROM {change} AS q"
        )
        over = "OVER (PARTITION BY q.__pgt_r)"
        net = f"SELECT q.*, row_number() {over} AS __pgt_i, sum(q.__pgt_n) {over} AS __pgt_s FROM ({signed}) AS q"
        return (
            f"SELECT {listed} FROM {kept} AS q WHERE NOT {among} "
            f"UNION ALL SELECT {listed} FROM ({net}) AS q WHERE q.__pgt_i <= q.__pgt_s"
        )

    # -- tables
    # ----------------------------------------------------------------------------------------------------------

    def _scan(self, scan: Scan, state: str) -> str:
        if state == OLD and scan.relation.relid in self.changed:
            rows, condition = self.scan_as_of(scan, "o")
            listed = ", ".join(f"o.{quote_ident(n)}" for _, n in scan.exposes) or "1 AS __pgt_one"
            return f"SELECT {listed} FROM ({rows}) AS o WHERE {condition}"
        return linear.render(scan, NOW).sql

    def scan_as_of(
        self, scan: Scan, alias: str, *, kept: bool = False, only: tuple[tuple[int, ...], str] | None = None
    ) -> tuple[str, str]:
        return as_of(scan, alias, self.changed[scan.relation.relid], self.share, kept=kept, only=only)

    def netted(self, scan: Scan, action: str) -> str:
        return netted(scan, self.changed[scan.relation.relid], action, self.share)


def _groups(into: Statement, node: Node, changed: Sequence[FromItem]) -> FromItem | None:
    """The one changed part that a query reads, where that is groups whose change goes by their keys."""
    if not isinstance(node, Block) or len(changed) != 1 or changed[0] not in parts(node) or changed[0].is_lateral:
        return None
    groups = changed[0].node
    if not isinstance(groups, Block) or not groups.region or free(groups):
        return None
    if not groups.columns or len({c.name for c in groups.columns}) < len(groups.columns):
        return None  # nothing to tell rows apart by; a name that means two columns
    return None if any(into.is_changed(s.node) for text in texts(groups) for s in subs(text)) else changed[0]


def from_items(items: Sequence[str], joins: Sequence[str]) -> str:
    """FROM with something joined to all that stands in it."""
    if not joins:
        return ", ".join(items)
    all_items = f"({' CROSS JOIN '.join(items)})" if len(items) > 1 else items[0]
    return " ".join([all_items, *joins])


def joined(kind: str, left: str, right: str, on: str | None, using: str | None) -> str:
    condition = f" ON {on}" if on is not None else f" USING {using}" if using is not None else ""
    return f"({left} {kind} {right}{condition})"


def constant(node: Values) -> str:
    listed = ", ".join(quote_ident(n) for n in node.names)
    return f"SELECT * FROM ({node.sql}) AS v({listed})"
