"""Affected rows: a condition for the rows of a SELECT that the delta of a nonlinear input can affect.

    affected(dN) = rows of FROM for which a delta row of N exists that the query's own conditions connect with it

    in:  SELECT ... FROM a LEFT JOIN b ON b.k = a.k            (b has changed)
    out: EXISTS (SELECT FROM db AS b WHERE b.k = a.k)
    in:  SELECT ... FROM a WHERE a.k IN (SELECT b.k FROM b)    (b has changed)
    out: EXISTS (SELECT FROM db AS b WHERE b.k = a.k)

The condition may accept too many rows, where a condition of the query cannot be used; it never accepts too few. None
means that any row may be affected.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.differentiate.full_join import preserved_items
from pgtrickle.pipeline.differentiate.semijoin_keys import correlated_columns, semijoin_condition
from pgtrickle.pipeline.differentiate.states import DELTA, Statement, View, from_clause, join_sql
from pgtrickle.pipeline.plan.keyed import is_in_condition
from pgtrickle.pipeline.plan.names import (
    alias_of,
    aliases_in_text,
    conjuncts,
    nested_from_items,
    outer_aliases,
    qualified,
)
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
    children,
    column_names,
    from_items,
    joins,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.text.tokens import Cursor, identifier


def affected_rows_of_item(statement: Statement, node: Block, part: FromItem, view: View) -> str | None:
    """For a FROM item on the nullable side of an outer join, or a LATERAL item."""
    if part.node is None:
        return None
    if part.is_lateral or outer_aliases(part.node):
        # If it names an item on the nullable side of an outer join, an affected row may have NULLs there.
        kept = {alias_of(p) for tree in node.trees for p in preserved_items(tree)}
        optional = {alias_of(p) for p in from_items(node)} - kept
        return None if outer_aliases(part.node) & optional else _affected_by_lateral(statement, part.node, view)
    for tree in node.trees:
        if part in tree_items(tree):
            return _through_join(statement, tree, part, view)
    return None


def _through_join(statement: Statement, tree: Tree, part: FromItem, view: View) -> str | None:
    """Descends to the outer join whose nullable side has the item: the condition is about its preserved side."""
    if isinstance(tree, FromItem) or tree.kind == "FULL JOIN":
        return None
    is_left = part in tree_items(tree.left)
    if (tree.kind == "LEFT JOIN" and not is_left) or (tree.kind == "RIGHT JOIN" and is_left):
        if tree.using is not None:
            conditions = _using(tree.left, tree.right, tree.using)
            if conditions is None:
                return None
        else:
            conditions = conjuncts(tree.on) if tree.on is not None else []
        return _exists(statement, (tree.right if not is_left else tree.left,), part, conditions, view)
    return _through_join(statement, tree.left if is_left else tree.right, part, view)


def _using(left: Tree, right: Tree, using: str) -> list[Text] | None:
    """The equalities of USING, with the merged columns replaced by columns of single items."""
    equalities: list[Text] = []
    for name in Cursor(using).names():
        sides = _column(left, name), _column(right, name)
        if None in sides:
            return None
        equalities.append((f"({sides[0]} = {sides[1]})",))
    return equalities


def _column(tree: Tree, name: str) -> str | None:
    """The column that a join outputs under a name, with the alias of its item; None where it is merged of several."""
    match tree:
        case FromItem():
            return (
                f"{tree.alias}.{quote_ident(name)}"
                if tree.node is not None and name in column_names(tree.node)
                else None
            )
        case Join():
            left, right = _column(tree.left, name), _column(tree.right, name)
            if tree.using is None or name not in Cursor(tree.using).names():
                return left or right
            return {"FULL JOIN": None, "RIGHT JOIN": right}.get(tree.kind, left)
        case _:
            assert_never(tree)


def affected_rows_of_subquery(
    statement: Statement, node: Block, sub: Subquery, part: FromItem, view: View
) -> str | None:
    """For a FROM item of a correlated subquery, or of a subquery behind IN."""
    test = _test(node, sub)
    if test is None or sub.test is None:
        return _affected(statement, sub.node, part, view, None)
    is_certain = _is_required(node, sub) or (
        _is_never_null(node, sub.test) and all(_yields_no_null(b) for b in _branches(sub.node))
    )
    return _affected(statement, sub.node, part, view, (test, is_certain))


def _test(node: Block, sub: Subquery) -> str | None:
    """The left side of IN, with qualified names, so that it means the same inside the subquery."""
    return qualified(node, sub.test) if sub.kind == "in" and sub.test is not None else None


def is_uncorrelated(sub: Subquery) -> bool:
    """Whether a subquery has one value for all rows."""
    return sub.kind in ("scalar", "row", "exists", "array") and not outer_aliases(sub.node)


def affected_rows_of_value(statement: Statement, node: Block, sub: Subquery, new: View, old: View) -> str:
    """For an uncorrelated subquery: no row when its value is unchanged, else the rows whose condition changes.

    in:  SELECT ... FROM a WHERE a.x > (SELECT avg(y) FROM b)
    out: new avg IS DISTINCT FROM old avg AND ((a.x > new avg) IS TRUE) <> ((a.x > old avg) IS TRUE)

    All rows where the subquery does not belong to a condition on rows.
    """
    branches = []
    for view in (new, old):
        sql = statement.render_subquery(sub, view)
        if sub.kind == "row":  # compared by its text, which decides for all types
            sql = f"SELECT ROW(q.*)::text FROM ({sql}) AS q"
        branches.append({"exists": f"EXISTS ({sql})", "array": f"ARRAY({sql})"}.get(sub.kind, f"({sql})"))
    is_another = f"({branches[0]} IS DISTINCT FROM {branches[1]})"
    for condition in conjuncts(node.where) if node.where is not None else []:
        # With a correlated subquery in the same condition, two evaluations for all rows may cost more than they save.
        if any(s is sub for s in subqueries(condition)) and all(is_uncorrelated(s) for s in subqueries(condition)):
            outcomes = [f"(({statement.render_text(condition, view)}) IS TRUE)" for view in (new, old)]
            return f"{is_another} AND {outcomes[0]} <> {outcomes[1]}"
    return is_another


def _is_required(node: Block, sub: Subquery) -> bool:
    """Whether the block keeps only rows for which IN is true, so that unknown has the effect of false."""
    if node.where is None:
        return False
    return any(is_in_condition(condition, sub) for condition in conjuncts(node.where))


def _is_never_null(node: Block, test: str) -> bool:
    pieces = [t.strip() for t in test.strip("() ").split(",")]
    return all(_column_is_never_null(node, p) for p in pieces)


def _column_is_never_null(node: Block, text: str) -> bool:
    alias, _, column = text.rpartition(".")
    candidates = [p for p in from_items(node) if not alias or identifier(alias) == alias_of(p)]
    if len(candidates) != 1 or not isinstance(candidates[0].node, Scan):
        return False
    if _has_outer_join(node):
        return False
    exposed = {name: attnum for attnum, name in candidates[0].node.exposes}
    attnum = exposed.get(identifier(column)) if column else None
    return any(c.attnum == attnum and c.not_null for c in candidates[0].node.relation.columns)


def _has_outer_join(node: Block) -> bool:
    return any(j.kind not in ("JOIN", "CROSS JOIN") for tree in node.trees for j in joins(tree))


def _branches(node: Node) -> tuple[Node, ...]:
    return tuple(b for c in children(node) for b in _branches(c)) if isinstance(node, Concat | Distinct) else (node,)


def _yields_no_null(node: Node) -> bool:
    if not isinstance(node, Block):
        return False
    return all(len(c.text) == 1 and _column_is_never_null(node, str(c.text[0])) for c in node.columns)


# -- inside a query that may name columns of an outer query
# --------------------------------------------------------------------------------------------------------------


def _affected_by_lateral(statement: Statement, node: Node, view: View) -> str | None:
    """For a LATERAL query with exactly one changed FROM item: the rows that its conditions connect with this delta."""
    changed = [p for p in nested_from_items(node) if p.node is not None and statement.is_changed(p.node)]
    if len(changed) != 1:
        return None
    return _affected(statement, node, changed[0], view, None)


def _affected(
    statement: Statement, node: Node, part: FromItem, view: View, test: tuple[str, bool] | None
) -> str | None:
    match node:
        case Concat() | SetOperation() | Distinct():
            child = next((c for c in children(node) if part in nested_from_items(c)), None)
            return _affected(statement, child, part, view, test) if child is not None else None
        case Block():
            return _affected_in_block(statement, node, part, view, test)
        case Scan() | Select() | UnionAll() | Recursive() | Values():
            return None
        case _:
            assert_never(node)


def _affected_in_block(
    statement: Statement, node: Block, part: FromItem, view: View, test: tuple[str, bool] | None
) -> str | None:
    if part.node is None:
        return None
    conditions = conjuncts(node.where) if node.where is not None else []
    if part in from_items(node):
        if part.is_lateral or outer_aliases(part.node):
            return None
        if test is not None and (compared := _compared(node, *test)) is not None:
            conditions.append((compared,))
        return _exists(statement, node.trees, part, conditions, view)
    if test is not None and node.region is None and (compared := _compared(node, *test)) is not None:
        conditions.append((compared,))
    return _affected_by_nested_item(statement, node, part, view, conditions)


def _affected_by_nested_item(
    statement: Statement, node: Block, part: FromItem, view: View, conditions: list[Text]
) -> str | None:
    """The FROM item belongs to a nested subquery: it affects rows of this query, and these affect the outer row."""
    if any(part in nested_from_items(s.node) for s in subqueries(node.tail)):
        return None
    if any(p.is_lateral or p.call for p in from_items(node)):
        return None
    for text in block_texts(node):
        for sub in subqueries(text):
            if part not in nested_from_items(sub.node):
                continue
            test = _test(node, sub)
            inner = _affected(statement, sub.node, part, view, (test, False) if test is not None else None)
            if inner is None:
                return None
            other_conditions = [statement.render_text(c, view) for c in conditions if sub not in subqueries(c)]
            if _has_outer_join(node):
                return None  # the subquery may belong to the condition of an outer join
            source = ", ".join(statement.render_tree(t, view, []) for t in node.trees)
            where = " AND ".join([*(f"({k})" for k in other_conditions), inner])
            return f"EXISTS (SELECT {f'FROM {source} ' if source else ''}WHERE {where})"
    return None


def _compared(node: Block, test: str, is_certain: bool) -> str | None:
    """The comparison of IN with a delta row; None where the subquery's rows are not computed one by one."""
    columns = [c.text for c in node.columns]
    if any(subqueries(c) for c in columns):
        return None
    listed = ["".join(str(p) for p in c) for c in columns]
    if node.region is not None and any(text not in node.region for text in listed):
        return None
    equal = f"({test}) = ({', '.join(listed)})"
    return f"({equal})" if is_certain else f"(({equal}) IS NOT FALSE)"


def _exists(statement: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text], view: View) -> str:
    delta_from = _FromWithDelta(statement, part, replace(view, is_isolated=statement.is_expensive(conditions)))
    items = [delta_from.source(t) for t in trees]
    kept = delta_from.kept(conditions)
    joins: list[str] = []
    where = " AND ".join(f"({statement.render_decorrelated(Block((), trees, None), c, view, joins)})" for c in kept)
    source = from_clause(items, joins)
    prefix = _semijoin_prefix(statement, trees, part, kept)
    return f"{prefix}EXISTS (SELECT FROM {source}{f' WHERE {where}' if where else ''})"


def _semijoin_prefix(statement: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text]) -> str:
    """The equalities of EXISTS as a separate IN, where EXISTS has other correlated conditions, too.

    PostgreSQL starts a semijoin from the delta only where equalities alone connect it with the row.
    """
    own_aliases = {alias_of(p) for t in trees for p in tree_items(t)}
    others = [
        c
        for c in conditions
        if aliases_in_text(c) - own_aliases
        and aliases_in_text(c) & own_aliases
        and correlated_columns(c, part, own_aliases) is None
    ]
    semijoin = semijoin_condition(statement, trees, part, conditions) if others else None
    return f"{semijoin} AND " if semijoin is not None else ""


class _FromWithDelta:
    """FROM with the delta of one item in its place, and joins that keep each delta row.

    `weak` are aliases whose columns may be NULL where they have values here, or vice versa: conditions on them are not
    reliable and are left out.
    """

    def __init__(self, statement: Statement, part: FromItem, view: View) -> None:
        self.statement = statement
        self.part = part
        self.view = view
        self.weak: set[str] = set()

    def kept(self, conditions: list[Text]) -> list[Text]:
        if not self.weak:
            return conditions
        return [c for c in conditions if not (self.weak & aliases_in_text(c)) and not subqueries(c)]

    def source(self, tree: Tree) -> str:
        if self.part not in tree_items(tree):
            return self.statement.render_tree(tree, self.view, [])
        match tree:
            case FromItem():
                changes = replace(self.view, overrides={**self.view.overrides, tree.number: DELTA})
                return self.statement.render_item(tree, changes, [])
            case Join():
                return self._join(tree)
            case _:
                assert_never(tree)

    def _join(self, tree: Join) -> str:
        is_left = self.part in tree_items(tree.left)
        left, right = self.source(tree.left), self.source(tree.right)
        changed_side, other_side = (tree.left, tree.right) if is_left else (tree.right, tree.left)
        conditions = conjuncts(tree.on) if tree.on is not None else []
        kept = self.kept(conditions)
        on = " AND ".join(f"({self.statement.render_text(c, self.view)})" for c in kept) if kept else None
        using = tree.using
        is_complete = len(kept) == len(conditions)
        if self.weak and using is not None:
            using, is_complete = None, False
        if not is_complete and tree.kind not in ("JOIN", "CROSS JOIN"):
            self.weak |= {alias_of(p) for p in tree_items(other_side)}
        kind = _kind_from_changes(tree.kind, is_left=is_left)
        if kind != tree.kind:
            self.weak |= {alias_of(p) for p in tree_items(changed_side)}
        if on is None and using is None and kind != "CROSS JOIN":
            on = "true"
        return join_sql(kind, left, right, on, using)


def _kind_from_changes(kind: str, *, is_left: bool) -> str:
    """The join that preserves the changed side (`is_left`: the left one) and no other."""
    match kind, is_left:
        case ("FULL JOIN", True):
            return "LEFT JOIN"
        case ("FULL JOIN", False):
            return "RIGHT JOIN"
        case ("LEFT JOIN", False) | ("RIGHT JOIN", True):
            return "JOIN"
    return kind
