"""Which rows of a SELECT the change of something that it is not linear in touches.

The answer is a condition on the rows of FROM: there is a changed row that the query's own conditions connect with this
one. It lets too many rows pass where a condition cannot be kept, never too few; None means that any row may be touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.differentiate.full_join import preserved
from pgtrickle.pipeline.differentiate.semijoin_keys import equality, keys_among_changes
from pgtrickle.pipeline.differentiate.states import DELTA, Statement, View, from_items, joined
from pgtrickle.pipeline.plan.keyed import is_all
from pgtrickle.pipeline.plan.names import aliases_of, below, conjuncts, free, own, qualified
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
    children,
    joins,
    leaves,
    names,
    parts,
    subs,
    texts,
)
from pgtrickle.pipeline.text.tokens import Cursor, identifier


def touched_by_part(into: Statement, node: Block, part: FromItem, view: View) -> str | None:
    """For a part of FROM on the side of an outer join that may stay empty, or a LATERAL one."""
    if part.node is None:
        return None
    if part.is_lateral or free(part.node):
        # Where it names an item that an outer join may leave empty, the row that it makes come or go has NULLs there.
        kept = {own(p) for tree in node.trees for p in preserved(tree)}
        optional = {own(p) for p in parts(node)} - kept
        return None if free(part.node) & optional else _touched_inside(into, part.node, view)
    for tree in node.trees:
        if part in leaves(tree):
            return _through_join(into, tree, part, view)
    return None


def _through_join(into: Statement, tree: Tree, part: FromItem, view: View) -> str | None:
    """Down to the outer join that the part is on the other side of: the condition is about its preserved side."""
    if isinstance(tree, FromItem) or tree.kind == "FULL JOIN":
        return None
    is_left = part in leaves(tree.left)
    if (tree.kind == "LEFT JOIN" and not is_left) or (tree.kind == "RIGHT JOIN" and is_left):
        if tree.using is not None:
            conditions = _using(tree.left, tree.right, tree.using)
            if conditions is None:
                return None
        else:
            conditions = conjuncts(tree.on) if tree.on is not None else []
        return _exists(into, (tree.right if not is_left else tree.left,), part, conditions, view)
    return _through_join(into, tree.left if is_left else tree.right, part, view)


def _using(left: Tree, right: Tree, using: str) -> list[Text] | None:
    """The equalities of USING, by the columns of single items that its merged ones are."""
    found: list[Text] = []
    for name in Cursor(using).names():
        sides = _column(left, name), _column(right, name)
        if None in sides:
            return None
        found.append((f"({sides[0]} = {sides[1]})",))
    return found


def _column(tree: Tree, name: str) -> str | None:
    """The column that a join shows under a name, with the alias of its item; None where it is one of several."""
    match tree:
        case FromItem():
            return f"{tree.alias}.{quote_ident(name)}" if tree.node is not None and name in names(tree.node) else None
        case Join():
            left, right = _column(tree.left, name), _column(tree.right, name)
            if tree.using is None or name not in Cursor(tree.using).names():
                return left or right
            return {"FULL JOIN": None, "RIGHT JOIN": right}.get(tree.kind, left)
        case _:
            assert_never(tree)


def touched_by_sub(into: Statement, node: Block, sub: Sub, part: FromItem, view: View) -> str | None:
    """For a part of a subquery in an expression over this block's rows."""
    test = _test(node, sub)
    if test is None or sub.test is None:
        return _touched(into, sub.node, part, view, None)
    is_certain = _is_required(node, sub) or (
        _is_never_null(node, sub.test) and all(_yields_no_null(b) for b in _branches(sub.node))
    )
    return _touched(into, sub.node, part, view, (test, is_certain))


def _test(node: Block, sub: Sub) -> str | None:
    """What stands left of IN, as it can stand inside."""
    return qualified(node, sub.test) if sub.kind == "in" and sub.test is not None else None


def is_alone(sub: Sub) -> bool:
    """Whether a subquery has one answer for all rows."""
    return sub.kind in ("scalar", "exists", "array") and not free(sub.node)


def touched_by_answer(into: Statement, node: Block, sub: Sub, new: View, old: View) -> str:
    """For a subquery with one answer for all rows: none when the answer is the same.

    Otherwise all; but where it belongs to a condition on rows, those for which that turns out differently.
    """
    answers = []
    for view in (new, old):
        sql = into.sub(sub, view)
        answers.append({"exists": f"EXISTS ({sql})", "array": f"ARRAY({sql})"}.get(sub.kind, f"({sql})"))
    is_another = f"({answers[0]} IS DISTINCT FROM {answers[1]})"
    for condition in conjuncts(node.where) if node.where is not None else []:
        # Beside a subquery that each row asks for itself, two evaluations for all rows may cost more than they save.
        if any(s is sub for s in subs(condition)) and all(is_alone(s) for s in subs(condition)):
            outcomes = [f"(({into.text(condition, view)}) IS TRUE)" for view in (new, old)]
            return f"{is_another} AND {outcomes[0]} <> {outcomes[1]}"
    return is_another


def _is_required(node: Block, sub: Sub) -> bool:
    """Whether the block keeps only rows for which IN is true, so that its being unknown is as good as false."""
    if node.where is None:
        return False
    return any(is_all(condition, sub) for condition in conjuncts(node.where))


def _is_never_null(node: Block, test: str) -> bool:
    pieces = [t.strip() for t in test.strip("() ").split(",")]
    return all(_column_is_never_null(node, p) for p in pieces)


def _column_is_never_null(node: Block, text: str) -> bool:
    alias, _, column = text.rpartition(".")
    candidates = [p for p in parts(node) if not alias or identifier(alias) == own(p)]
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


# -- inside a query that may name columns from around it
# --------------------------------------------------------------------------------------------------------------


def _touched_inside(into: Statement, node: Node, view: View) -> str | None:
    """For a query that is read as a whole: where exactly one part in it has changed, the rows that it connects with."""
    changed = [p for p in below(node) if p.node is not None and into.is_changed(p.node)]
    if len(changed) != 1:
        return None
    return _touched(into, node, changed[0], view, None)


def _touched(into: Statement, node: Node, part: FromItem, view: View, test: tuple[str, bool] | None) -> str | None:
    match node:
        case Concat() | SetOperation() | Distinct():
            child = next((c for c in children(node) if part in below(c)), None)
            return _touched(into, child, part, view, test) if child is not None else None
        case Block():
            return _touched_in_block(into, node, part, view, test)
        case Scan() | Select() | UnionAll() | Recursive() | Values():
            return None
        case _:
            assert_never(node)


def _touched_in_block(
    into: Statement, node: Block, part: FromItem, view: View, test: tuple[str, bool] | None
) -> str | None:
    if part.node is None:
        return None
    conditions = conjuncts(node.where) if node.where is not None else []
    if part in parts(node):
        if part.is_lateral or free(part.node):
            return None
        if test is not None and (compared := _compared(node, *test)) is not None:
            conditions.append((compared,))
        return _exists(into, node.trees, part, conditions, view)
    if test is not None and node.region is None and (compared := _compared(node, *test)) is not None:
        conditions.append((compared,))
    return _touched_deeper(into, node, part, view, conditions)


def _touched_deeper(into: Statement, node: Block, part: FromItem, view: View, conditions: list[Text]) -> str | None:
    """The part belongs to a subquery of this one: rows connect with rows here that it touches."""
    if any(part in below(s.node) for s in subs(node.tail)):
        return None
    if any(p.is_lateral or p.call for p in parts(node)):
        return None
    for text in texts(node):
        for sub in subs(text):
            if part not in below(sub.node):
                continue
            test = _test(node, sub)
            inner = _touched(into, sub.node, part, view, (test, False) if test is not None else None)
            if inner is None:
                return None
            kept = [into.text(c, view) for c in conditions if sub not in subs(c)]
            if _has_outer_join(node):
                return None  # the subquery may belong to the condition of an outer join
            source = ", ".join(into.tree(t, view, []) for t in node.trees)
            return f"EXISTS (SELECT FROM {source} WHERE {' AND '.join([*(f'({k})' for k in kept), inner])})"
    return None


def _compared(node: Block, test: str, is_certain: bool) -> str | None:
    """The comparison of IN with a changed row; None where the subquery's rows are not made one by one."""
    columns = [c.text for c in node.columns]
    if any(subs(c) for c in columns):
        return None
    listed = ["".join(str(p) for p in c) for c in columns]
    if node.region is not None and any(text not in node.region for text in listed):
        return None
    equal = f"({test}) = ({', '.join(listed)})"
    return f"({equal})" if is_certain else f"(({equal}) IS NOT FALSE)"


def _exists(into: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text], view: View) -> str:
    walk = _Walk(into, part, replace(view, is_apart=into.is_costly(conditions)))
    items = [walk.source(t) for t in trees]
    kept = walk.kept(conditions)
    joins: list[str] = []
    where = " AND ".join(f"({into.looked_up(Block((), trees, None), c, view, joins)})" for c in kept)
    source = from_items(items, joins)
    among = _among(into, trees, part, kept)
    return f"{among}EXISTS (SELECT FROM {source}{f' WHERE {where}' if where else ''})"


def _among(into: Statement, trees: tuple[Tree, ...], part: FromItem, conditions: list[Text]) -> str:
    """What equalities of EXISTS say by themselves, as IN, where other conditions stand beside them.

    PostgreSQL starts from the changes only where a row is connected with them by equalities alone.
    """
    here = {own(p) for t in trees for p in leaves(t)}
    others = [
        c for c in conditions if aliases_of(c) - here and aliases_of(c) & here and equality(c, part, here) is None
    ]
    among = keys_among_changes(into, trees, part, conditions) if others else None
    return f"{among} AND " if among is not None else ""


class _Walk:
    """FROM with a part's changes in its place, and joins so that each of them is met.

    `weak` are aliases whose columns may be NULL where this sees values, or the other way round: conditions on them say
    nothing and are left out.
    """

    def __init__(self, into: Statement, part: FromItem, view: View) -> None:
        self.into = into
        self.part = part
        self.view = view
        self.weak: set[str] = set()

    def kept(self, conditions: list[Text]) -> list[Text]:
        if not self.weak:
            return conditions
        return [c for c in conditions if not (self.weak & aliases_of(c)) and not subs(c)]

    def source(self, tree: Tree) -> str:
        if self.part not in leaves(tree):
            return self.into.tree(tree, self.view, [])
        match tree:
            case FromItem():
                changes = replace(self.view, special={**self.view.special, tree.number: DELTA})
                return self.into.part(tree, changes, [])
            case Join():
                return self._join(tree)
            case _:
                assert_never(tree)

    def _join(self, tree: Join) -> str:
        is_left = self.part in leaves(tree.left)
        left, right = self.source(tree.left), self.source(tree.right)
        here, there = (tree.left, tree.right) if is_left else (tree.right, tree.left)
        conditions = conjuncts(tree.on) if tree.on is not None else []
        kept = self.kept(conditions)
        on = " AND ".join(f"({self.into.text(c, self.view)})" for c in kept) if kept else None
        using = tree.using
        is_complete = len(kept) == len(conditions)
        if self.weak and using is not None:
            using, is_complete = None, False
        if not is_complete and tree.kind not in ("JOIN", "CROSS JOIN"):
            self.weak |= {own(p) for p in leaves(there)}
        kind = _kind_from_changes(tree.kind, is_left=is_left)
        if kind != tree.kind:
            self.weak |= {own(p) for p in leaves(here)}
        if on is None and using is None and kind != "CROSS JOIN":
            on = "true"
        return joined(kind, left, right, on, using)


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
