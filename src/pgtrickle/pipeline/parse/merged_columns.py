"""Columns that USING has merged, where a subquery names them.

PostgreSQL prints such a column without an alias if it is not simply the column of one side: for a FULL JOIN, or for two
types. The text of a subquery must show which outer columns it reads, so there they are expanded. The SELECT that merges
them keeps the unqualified names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, assert_never

from pgtrickle.pipeline.plan.names import alias_of, replace_bare_names
from pgtrickle.pipeline.plan.nodes import (
    AggregateCall,
    Block,
    From,
    FromItem,
    Grouped,
    Item,
    Join,
    Limit,
    Output,
    OutputColumn,
    Scan,
    Select,
    Subquery,
    Text,
    Tree,
    Values,
    column_names,
    from_items,
    tree_items,
)
from pgtrickle.pipeline.plan.using import MergedColumns, column_list_start, item_columns, merged_columns, merged_sides
from pgtrickle.pipeline.text.tokens import Cursor, identifier

Value = TypeVar("Value")

# The fields of nodes that contain SQL; those of others are names and keywords.
_SQL = {
    AggregateCall: ("argument", "filter", "sql"),
    Block: ("where", "region", "tail", "distinct_on", "written_alike", "order"),
    Values: ("sql",),
    From: ("parts",),
    Grouped: ("columns", "outputs", "having"),
    Item: ("sql",),
    Join: ("on",),
    Limit: ("clause",),
    OutputColumn: ("text",),
    Output: ("parts",),
    Select: ("where",),
    Subquery: ("test",),
}


def expand_in_text(text: Text, trees: tuple[Tree, ...]) -> Text:
    """An expression over this FROM, with the merged columns in its subqueries expanded."""
    outer = merged_columns(trees) if any(isinstance(p, Subquery) for p in text) else {}
    return (
        tuple(replace(p, node=_expanded(p.node, outer)) if isinstance(p, Subquery) else p for p in text)
        if outer
        else text
    )


def expand_in_from(trees: tuple[Tree, ...]) -> tuple[Tree, ...]:
    """The same for FROM itself: join conditions and LATERAL items, which name items left of them."""
    expanded: tuple[Tree, ...] = ()
    for tree in trees:
        expanded = (*expanded, _in_tree(tree, expanded))
    return expanded


def _in_tree(tree: Tree, left: tuple[Tree, ...]) -> Tree:
    match tree:
        case FromItem():
            return (
                replace(tree, node=_expanded(tree.node, merged_columns(left)))
                if tree.is_lateral and tree.node
                else tree
            )
        case Join():
            first = _in_tree(tree.left, left)
            second = _in_tree(tree.right, (*left, first))
            on = expand_in_text(tree.on, (first, second)) if tree.on is not None else None
            return replace(tree, left=first, right=second, on=on)
        case _:
            assert_never(tree)


def with_side_columns(node: Block, full_join: Join, *, is_left: bool) -> Block:
    """A half of a FULL JOIN (see `differentiate.full_join`), in which a merged column is the column of one side, which
    an index may support.

    Only if all have one type: the type of COALESCE may differ from both.
    """
    for both, left, right in merged_sides(full_join):
        scope = _Replacement(both, left if is_left else right, frozenset(alias_of(p) for p in tree_items(full_join)))
        node = _replaced_in_fields(node, scope)
    return node


@dataclass(frozen=True, slots=True)
class _Outer:
    """The meaning of unqualified names that no inner query defines."""

    names: MergedColumns

    def text(self, sql: str) -> str:
        return replace_bare_names(sql, lambda name: self.names.get(identifier(name))) if self.names else sql

    def within(self, node: Block | Select) -> _Outer:
        inner = _own_columns(node)
        return _Outer({name: sql for name, sql in self.names.items() if name not in inner})


@dataclass(frozen=True, slots=True)
class _Replacement:
    """Replaces a text, as long as the aliases in it refer to the same items."""

    old: str
    new: str
    aliases: frozenset[str]

    def text(self, sql: str) -> str:
        return sql.replace(self.old, self.new)

    def within(self, node: Block | Select) -> _Replacement | _Outer:
        items = from_items(node) if isinstance(node, Block) else node.source.members if node.source is not None else ()
        return self if self.aliases.isdisjoint(identifier(i.alias) for i in items) else _Outer({})


def _expanded(value: Value, outer: MergedColumns) -> Value:
    """The plan with these columns expanded wherever they refer to the outer query."""
    expanded: Value = _replaced(value, _Outer(outer), is_sql=True) if outer else value
    return expanded


def _replaced(value: Any, scope: _Outer | _Replacement, *, is_sql: bool) -> Any:
    if isinstance(value, str):
        return scope.text(value) if is_sql else value
    if isinstance(value, tuple):
        return tuple(_replaced(item, scope, is_sql=is_sql) for item in value)
    if not is_dataclass(value) or isinstance(value, type | Scan):
        return value
    if isinstance(value, Block | Select):
        scope = scope.within(value)
    if isinstance(value, FromItem) and value.call:
        return replace(value, call=_replaced_in_call(value.call, scope))
    return _replaced_in_fields(value, scope)


def _replaced_in_fields(value: Any, scope: _Outer | _Replacement) -> Any:
    sql = _SQL.get(type(value), ())
    return replace(
        value, **{f.name: _replaced(getattr(value, f.name), scope, is_sql=f.name in sql) for f in fields(value)}
    )


def _replaced_in_call(call: Text, scope: _Outer | _Replacement) -> Text:
    """A function call, except for its column list."""
    last = call[-1]
    at = column_list_start(last) if isinstance(last, str) else 0
    if not isinstance(last, str) or not at:
        return call
    cursor = Cursor(last)
    before, after = cursor.text(0, at), last[cursor.tokens[at].start :]
    written = tuple(_replaced(piece, scope, is_sql=True) for piece in (*call[:-1], before))
    return (*written[:-1], f"{written[-1]}{after}")


def _own_columns(node: Block | Select) -> frozenset[str]:
    """The column names of a query's own FROM."""
    match node:
        case Block():
            return frozenset().union(*(item_columns(p) for p in from_items(node)))
        case Select():
            members = node.source.members if node.source is not None else ()
            return frozenset(name for m in members for name in column_names(m.node))
        case _:
            assert_never(node)
