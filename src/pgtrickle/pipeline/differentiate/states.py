"""Renders a plan as SQL over the new state of its tables, the old state, or a mixture (a View).

Relations that several places of a statement need are in WITH, materialised, once: the delta rows of a source, the old
rows of its changed keys, the keys of affected regions, the delta of a subquery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import row_text
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.as_of import as_of, isolated, net_changes
from pgtrickle.pipeline.differentiate.invertible import invertible_groups
from pgtrickle.pipeline.differentiate.linear import NOW, ChangedSource, Rendered, Term, W
from pgtrickle.pipeline.plan.keyed import KeyedGroups, is_in_condition, keyed_groups, with_condition
from pgtrickle.pipeline.plan.names import conjuncts, nested_from_items, outer_aliases, qualified
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
    Subquery,
    Text,
    Tree,
    UnionAll,
    Values,
    block_texts,
    column_names,
    from_items,
    scans,
    subqueries,
)

NEW, OLD = "new", "old"
# Up to FEWEST_ROWS changes, groups behind IN are evaluated key by key, each of which searches all old rows. Up to
# FEW_ROWS they are also where the keys are not known: otherwise all groups would be computed.
FEWEST_ROWS = 200
FEW_ROWS = 2_000
DELTA, OLD_WEIGHTED = "delta", "old weighted"  # of a FROM item: its delta; old = new - delta, as rows with weights
# Of a FROM item: its new state, evaluated once; its old state, computed from that and its delta, without weights.
NEW_SHARED, OLD_FROM_DELTA = "new shared", "old from delta"


@dataclass(frozen=True, slots=True)
class View:
    """The state in which each FROM item is read: `overrides` by the item's number, else `default`.

    `key_filters`: of a table in the old state, by the item's number, columns and a query of the keys that are needed.
    `is_isolated`: conditions are evaluated above the delta of an item and not on it: PostgreSQL estimates that
    conditions cost nothing each time it rescans the delta.
    """

    default: str
    overrides: Mapping[int, str] = field(default_factory=dict)
    key_filters: Mapping[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    is_isolated: bool = False

    def state_of(self, part: FromItem) -> str:
        return self.overrides.get(part.number, self.default)


ALL_NEW, ALL_OLD = View(NEW), View(OLD)


@dataclass(frozen=True, slots=True)
class DecorrelatedSubquery:
    """Of a correlated subquery: a join to add to FROM, and the expression that replaces the subquery then."""

    source: str
    sql: str


class Statement:
    """A statement that is being built: which sources have changed, and the items of its WITH."""

    def __init__(
        self,
        changed: Mapping[int, ChangedSource],
        delta: Callable[[Statement, Node], str],
        correlates: Callable[[Statement, Node, FromItem], str | None] | None = None,
        decorrelate: Callable[[Statement, Block, Subquery, View, str], DecorrelatedSubquery | None] | None = None,
    ) -> None:
        """Without `correlates` and `decorrelate` each old state is evaluated from its tables, not from deltas."""
        self.changed = changed
        self.rows = sum(c.rows for c in changed.values())
        self._correlates = correlates
        self._decorrelate = decorrelate
        self.shared: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._all_rows_names: dict[str, str] = {}  # plans in the new state that are evaluated once, by SQL
        self._chosen: dict[str, tuple[str, Callable[[str], str]]] = {}  # some rows of such a plan: its SQL, the filter
        self._delta = delta

    def share(self, sql: str, prefix: str) -> str:
        """The name of the WITH item with the rows of `sql`; equal texts share one item."""
        if sql not in self._names:
            self._names[sql] = f'"__pgt_s{prefix}{len(self._names)}"'
            self.shared[self._names[sql]] = sql
        return self._names[sql]

    def share_all_rows(self, sql: str) -> str:
        """The same for all rows of a plan that reads tables only."""
        return self._all_rows_names.setdefault(sql, f'"__pgt_sw{len(self._all_rows_names)}w"')

    def share_selected_rows(self, sql: str, all_rows: str, chosen: Callable[[str], str]) -> str:
        """The same for some rows of a plan. Where `all_rows` of the plan are shared anyway, `chosen` filters these."""
        name = self.share(sql, "s")
        self._chosen[name] = (all_rows, chosen)
        return name

    def delta_of(self, node: Node) -> str:
        """The name of a plan's delta: its columns, then the weight."""
        return self._delta(self, node)

    def with_clause(self) -> str:
        items = {name: sql for sql, name in self._all_rows_names.items()}
        for name, sql in self.shared.items():
            all_rows, chosen = self._chosen.get(name, ("", None))
            items[name] = (
                chosen(self._all_rows_names[all_rows])
                if chosen is not None and all_rows in self._all_rows_names
                else sql
            )
        return f"WITH {', '.join(f'{n} AS MATERIALIZED ({s})' for n, s in items.items())} " if items else ""

    def is_changed(self, node: Node) -> bool:
        return any(s.relation.relid in self.changed for s in scans(node))

    # -- plans
    # ----------------------------------------------------------------------------------------------------------

    def render(self, node: Node, view: View) -> str:
        """The rows of a plan, without weights."""
        if view.default == OLD and not view.overrides and not self.is_changed(node):
            view = ALL_NEW
        match node:
            case Scan():
                return self._scan(node, view.default)
            case Select() | UnionAll():
                term = NOW if view.default == NEW else Term(frozenset(), self.changed, as_of=self.scan_as_of)
                return linear.render(node, term).sql
            case Block():
                return self.render_block(node, view).sql
            case Distinct():
                return f"SELECT DISTINCT q.* FROM ({self.render(node.node, view)}) AS q"
            case Concat():
                return " UNION ALL ".join(f"({self.render(b, view)})" for b in node.branches)
            case SetOperation():
                return f"({self.render(node.left, view)}) {node.operator} ({self.render(node.right, view)})"
            case Recursive():
                return self._recursive(node, view)
            case Values():
                return values_sql(node)
            case _:
                assert_never(node)

    def _recursive(self, node: Recursive, view: View) -> str:
        listed = ", ".join(quote_ident(n) for n in node.names)
        shown = ", ".join(
            f"r.{quote_ident(n)} AS {quote_ident(s)}" for n, s in zip(node.names, node.output_names, strict=True)
        )
        first, step = self.render(node.first, view), self.render(node.step, view)
        body = f"{node.name}({listed}) AS (({first}) {node.operator} ({step}))"
        return f"WITH RECURSIVE {body} SELECT {shown} FROM {node.name} AS r"

    def render_block(
        self,
        node: Block,
        view: View,
        *,
        conditions: Sequence[str] = (),
        sign: int | None = None,
        needed_keys: Callable[[Subquery], str | None] | None = None,
    ) -> Rendered:
        """`conditions` are added to WHERE; `sign` is a factor of the weight, or the weight where no item has one.

        `needed_keys` returns a query of all keys that the block needs from a subquery behind IN, if they are few.
        """
        weights: list[str] = []
        open_conditions: list[str] = []
        required = conjuncts(node.where) if node.where is not None else []
        if self.is_expensive(required):
            view = replace(view, is_isolated=True)
        items = [self.render_tree(t, view, weights, open_conditions) for t in node.trees]
        columns = [f"{self.render_text(c.text, view)} AS {quote_ident(c.name)}" for c in node.columns]
        if sign == -1 or (sign is not None and not weights):
            weights.append(str(sign))
        if weights:
            columns.append(f"{' * '.join(weights)} AS {W}")
        joins: list[str] = []
        where = [f"({self.render_condition(node, c, view, joins, needed_keys)})" for c in required]
        where += [*conditions, *open_conditions]
        source = from_clause(items, joins)
        head = "SELECT "
        if node.distinct_on is not None:
            head += f"DISTINCT ON ({self.render_text(node.distinct_on, view)}) "
        sql = head + ", ".join(columns)
        sql += f" FROM {source}" if source else ""
        sql += f" WHERE {' AND '.join(where)}" if where else ""
        sql += self.render_text(node.tail, view)
        if node.order and not weights:
            sql += f" ORDER BY {self.render_text(node.order, view)}"
        return Rendered(sql, bool(weights))

    def render_tree(self, tree: Tree, view: View, weights: list[str], where: list[str] | None = None) -> str:
        """`where` takes the conditions of items in the old state, where a condition in WHERE has the same effect."""
        match tree:
            case FromItem():
                return self.render_item(tree, view, weights, where)
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
            sides.append(self.render_tree(side, view, weights, place))
        condition = self.render_text(tree.on, view) if tree.on is not None else None
        if on:
            condition = " AND ".join([*([f"({condition})"] if condition is not None else []), *on])
        kind = "JOIN" if tree.kind == "CROSS JOIN" and condition is not None else tree.kind
        return join_sql(kind, sides[0], sides[1], condition, tree.using)

    def render_item(self, part: FromItem, view: View, weights: list[str], where: list[str] | None = None) -> str:
        if part.node is None:
            return self.render_text(part.call, view)
        role = view.state_of(part)
        if part.is_lateral:
            return f"LATERAL ({self.render(part.node, View(role, view.overrides))}) AS {part.alias}"
        if role in (DELTA, OLD_WEIGHTED):
            weights.append(f"{part.alias}.{W}")
        if role == DELTA:
            changes = self.delta_of(part.node)
            return f"{isolated(changes) if view.is_isolated else f'(SELECT * FROM {changes})'} AS {part.alias}"
        if role == OLD_WEIGHTED:
            listed = ", ".join(f"q.{quote_ident(n)}" for n in column_names(part.node))
            new_rows = f"SELECT {listed}, 1 AS {W} FROM ({self.render(part.node, ALL_NEW)}) AS q"
            deleted = f"SELECT {listed}, -q.{W} FROM {isolated(self.delta_of(part.node))} AS q"
            return f"({new_rows} UNION ALL {deleted}) AS {part.alias}"
        if role in (NEW_SHARED, OLD_FROM_DELTA):
            new_rows = self.share(self._all_rows(part.node), "n")
            rows = self._subtract_delta(part.node, new_rows) if role == OLD_FROM_DELTA else f"SELECT * FROM {new_rows}"
            return f"({rows}) AS {part.alias}"
        is_old = role == OLD and self.is_changed(part.node)
        if not is_old and isinstance(part.node, Block) and self._is_evaluated(part.node):
            return f"(SELECT * FROM {self.share(self._all_rows(part.node), 'n')}) AS {part.alias}"
        if is_old and where is not None and isinstance(part.node, Scan):
            key_filter = view.key_filters.get(part.number)
            rows, condition = self.scan_as_of(part.node, part.alias, key_filter=key_filter)
            where.append(condition)
            return f"({rows}) AS {part.alias}"
        return f"({self.render(part.node, ALL_OLD if is_old else ALL_NEW)}) AS {part.alias}"

    def is_expensive(self, conditions: Sequence[Text]) -> bool:
        """Whether there are many changes, and each row evaluates a subquery."""
        return self.rows > FEWEST_ROWS and any(subqueries(c) for c in conditions)

    def render_condition(
        self,
        node: Block,
        condition: Text,
        view: View,
        joins: list[str],
        needed_keys: Callable[[Subquery], str | None] | None = None,
    ) -> str:
        """A conjunct of WHERE. In `x IN (SELECT key ... GROUP BY key)` PostgreSQL would compute all groups.

        Where an index finds the rows of a group, only the needed groups are computed: key by key for few changes, all
        keys at once for many, because each single key would search all old rows. Correlated subqueries are
        decorrelated for the same reason; `joins` takes the joins to add to FROM for them.
        """
        changes = self.rows
        if changes and len(condition) == 3 and isinstance(sub := condition[1], Subquery):
            keyed = keyed_groups(sub) if is_in_condition(condition, sub) else None
            if keyed is not None:
                keys = needed_keys(sub) if needed_keys is not None and changes > FEWEST_ROWS else None
                if keys is not None:
                    return f"{condition[0]}{self._groups_with_keys(keyed, keys, view)}{condition[2]}"
                test = qualified(node, sub.test) if sub.test is not None and changes <= FEW_ROWS else None
                if test is not None:
                    return f"EXISTS ({self.render(with_condition(keyed, f'({keyed.key} = {test})'), view)})"
        return self.render_decorrelated(node, condition, view, joins)

    def render_decorrelated(self, node: Block, text: Text, view: View, joins: list[str]) -> str:
        """A condition over a block's FROM, whose correlated subqueries become joins where there are many changes."""
        return "".join(self._decorrelated(node, p, view, joins) if isinstance(p, Subquery) else p for p in text)

    def _decorrelated(self, node: Block, sub: Subquery, view: View, joins: list[str]) -> str:
        decorrelated = None
        if self._decorrelate is not None and self.rows > FEWEST_ROWS:
            decorrelated = self._decorrelate(self, node, sub, view, f'"__pgt_l{len(joins)}"')
        if decorrelated is None:
            return self.render_subquery(sub, view)
        joins.append(decorrelated.source)
        return decorrelated.sql

    def _groups_with_keys(self, groups: KeyedGroups, keys: str, view: View) -> str:
        """The groups that have one of these keys."""
        has_key = f"({groups.key} IN ({keys}))"
        if view.state_of(groups.part) != OLD or groups.part not in groups.block.trees:
            return self.render(with_condition(groups, has_key), view)
        return self.render(groups.block, replace(view, key_filters={groups.part.number: ((groups.attnum,), keys)}))

    def render_text(self, text: Text, view: View) -> str:
        return "".join(self.render_subquery(p, view) if isinstance(p, Subquery) else p for p in text)

    def render_subquery(self, sub: Subquery, view: View) -> str:
        """A subquery of an expression. The value of an uncorrelated subquery is evaluated once for the statement.

        A correlated subquery in the old state reads the new state where no change has its correlation keys, because
        reading the old state means a search through all old rows.
        """
        if sub.kind != "scalar" or not self.changed or self._correlates is None:
            return self.render(sub.node, view)
        changed = [p for p in nested_from_items(sub.node) if p.node is not None and self.is_changed(p.node)]
        states = {view.state_of(p) for p in changed}
        if outer_aliases(sub.node):
            has_changed_keys = (
                self._correlates(self, sub.node, changed[0]) if len(changed) == 1 and states == {OLD} else None
            )
            if has_changed_keys is None:
                return self.render(sub.node, view)
            new_view = View(view.default, {**view.overrides, changed[0].number: NEW})
            old, new = self.render(sub.node, view), self.render(sub.node, new_view)
            return f"SELECT CASE WHEN {has_changed_keys} THEN ({old}) ELSE ({new}) END"
        if changed and states not in ({NEW}, {OLD}):
            return self.render(sub.node, view)
        state = OLD if OLD in states else NEW
        groups = _groups(self, sub.node, changed)
        if groups is not None:
            seen = View(NEW, {groups.number: NEW_SHARED if state == NEW else OLD_FROM_DELTA})
        else:
            seen = ALL_OLD if state == OLD else ALL_NEW
        return f"SELECT v.v FROM {self.share(f'SELECT ({self.render(sub.node, seen)}) AS v', 'v')} AS v"

    def _all_rows(self, node: Node) -> str:
        """All rows of a plan in the new state; invertible groups from the group state that their delta needs, too."""
        groups = invertible_groups(node) if isinstance(node, Block) else None
        if groups is None or not groups.reads_tables_only:
            return self.render(node, ALL_NEW)
        return groups.render_rows("", self.share_all_rows(self.render_block(groups.state_block, ALL_NEW).sql))

    def _is_evaluated(self, node: Block) -> bool:
        """Whether the statement evaluates all groups of a block anyway."""
        groups = invertible_groups(node) if self._all_rows_names else None
        return groups is not None and self.render_block(groups.state_block, ALL_NEW).sql in self._all_rows_names

    def _subtract_delta(self, node: Node, current: str) -> str:
        """old = new - delta, as rows without weights; each weight of the delta is 1 or -1.

        Rows are compared as texts: not every type has an equality, and 1.0 must not become 1.00.
        """
        columns = [f"q.{quote_ident(n)}" for n in column_names(node)]
        listed, row = ", ".join(columns), row_text(columns)
        change = self.delta_of(node)
        changed_rows = self.share(f"SELECT DISTINCT {row} AS r FROM {change} AS q", "t")
        is_changed = f"({row} IN (SELECT t.r FROM {changed_rows} AS t))"
        signed = (
            f"SELECT {listed}, {row} AS __pgt_r, 1 AS __pgt_n FROM {current} AS q WHERE {is_changed} "
            f"UNION ALL SELECT {listed}, {row}, -q.{W} FROM {change} AS q"
        )
        over = "OVER (PARTITION BY q.__pgt_r)"
        net = f"SELECT q.*, row_number() {over} AS __pgt_i, sum(q.__pgt_n) {over} AS __pgt_s FROM ({signed}) AS q"
        return (
            f"SELECT {listed} FROM {current} AS q WHERE NOT {is_changed} "
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
        self,
        scan: Scan,
        alias: str,
        *,
        surviving_only: bool = False,
        key_filter: tuple[tuple[int, ...], str] | None = None,
    ) -> tuple[str, str]:
        return as_of(
            scan,
            alias,
            self.changed[scan.relation.relid],
            self.share,
            surviving_only=surviving_only,
            key_filter=key_filter,
        )

    def net_changes_of(self, scan: Scan, action: str) -> str:
        return net_changes(scan, self.changed[scan.relation.relid], action, self.share)


def _groups(statement: Statement, node: Node, changed: Sequence[FromItem]) -> FromItem | None:
    """The one changed FROM item of a query, where it is a block of groups whose delta is computed by group key."""
    if not isinstance(node, Block) or len(changed) != 1 or changed[0] not in from_items(node) or changed[0].is_lateral:
        return None
    groups = changed[0].node
    if not isinstance(groups, Block) or not groups.region or outer_aliases(groups):
        return None
    if not groups.columns or len({c.name for c in groups.columns}) < len(groups.columns):
        return None  # no column to compare rows by, or a name of two columns
    return (
        None
        if any(statement.is_changed(s.node) for text in block_texts(groups) for s in subqueries(text))
        else changed[0]
    )


def from_clause(items: Sequence[str], joins: Sequence[str]) -> str:
    """FROM with joins to all of its items."""
    if not joins:
        return ", ".join(items)
    all_items = f"({' CROSS JOIN '.join(items)})" if len(items) > 1 else items[0]
    return " ".join([all_items, *joins])


def join_sql(kind: str, left: str, right: str, on: str | None, using: str | None) -> str:
    condition = f" ON {on}" if on is not None else f" USING {using}" if using is not None else ""
    return f"({left} {kind} {right}{condition})"


def values_sql(node: Values) -> str:
    listed = ", ".join(quote_ident(n) for n in node.names)
    return f"SELECT * FROM ({node.sql}) AS v({listed})"
