"""Small rewrites of plans: the simplest node for a query, unions, other column names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Concat,
    Distinct,
    From,
    FromItem,
    Input,
    Item,
    Join,
    Member,
    Node,
    OutputColumn,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Text,
    Tree,
    UnionAll,
    Values,
    column_names,
    from_items,
    plain_sql,
    subqueries,
)


def simplify(block: Block) -> Select | Block:
    """A block as a Select where it is linear in all its inputs."""
    if block.region is not None or block.order or any(subqueries(c.text) for c in block.columns):
        return block
    source = input_of(block.trees, block.where)
    if isinstance(source.source, tuple):
        return block
    items = tuple(Item(c.name, plain_sql(c.text)) for c in block.columns)
    return Select(items, source.source, plain_sql(block.where) if block.where is not None else None)


def input_of(trees: tuple[Tree, ...], where: Text | None) -> Input:
    """FROM and WHERE as a linear input where they are linear."""
    if where is not None and subqueries(where):
        return Input(trees, where)
    if not trees:
        return Input(None, where)
    members: list[Member] = []
    pieces: list[str | int] = []
    for number, tree in enumerate(trees):
        if number:
            pieces.append(", ")
        if not _flatten(tree, pieces, members):
            return Input(trees, where)
    return Input(From(tuple(pieces), tuple(members)), where)


def _flatten(tree: Tree, pieces: list[str | int], members: list[Member]) -> bool:
    match tree:
        case FromItem():
            if tree.is_lateral or not isinstance(tree.node, Scan | Select | UnionAll):
                return False
            pieces.append(len(members))
            members.append(Member(tree.node, tree.alias))
            return True
        case Join():
            return _flatten_join(tree, pieces, members)
        case _:
            assert_never(tree)


def _flatten_join(tree: Join, pieces: list[str | int], members: list[Member]) -> bool:
    if tree.kind not in ("JOIN", "CROSS JOIN") or (tree.on is not None and subqueries(tree.on)):
        return False
    pieces.append("(")
    if not _flatten(tree.left, pieces, members):
        return False
    pieces.append(f" {tree.kind} ")
    if not _flatten(tree.right, pieces, members):
        return False
    if tree.on is not None:
        pieces.append(f" ON {plain_sql(tree.on)}")
    if tree.using is not None:
        pieces.append(f" USING {tree.using}")
    pieces.append(")")
    return True


def union_all(left: Node, right: Node) -> Node:
    """UNION ALL, which is linear when both sides are."""
    if isinstance(left, Select | UnionAll) and isinstance(right, Select | UnionAll):
        first = left.branches if isinstance(left, UnionAll) else (left,)
        return UnionAll((*first, right))
    first_all = left.branches if isinstance(left, Concat | UnionAll) else (left,)
    return Concat((*first_all, right))


def with_column_names(plan: Plan, names: tuple[str, ...]) -> Plan:
    """The same plan with these output names (a view's or a CTE's own column names win over those of its query)."""
    match plan:
        case UnionAll() | Concat():
            first = with_column_names(plan.branches[0], names)
            return replace(plan, branches=(first, *plan.branches[1:]))  # type: ignore[arg-type]
        case Select():
            return replace(plan, items=tuple(replace(i, name=n) for i, n in zip(plan.items, names, strict=True)))
        case Block():
            return replace(plan, columns=tuple(replace(c, name=n) for c, n in zip(plan.columns, names, strict=True)))
        case Distinct():
            return Distinct(_node(with_column_names(plan.node, names)))
        case SetOperation():
            return replace(plan, left=_node(with_column_names(plan.left, names)))
        case Values():
            return replace(plan, names=names)
        case Recursive():
            return replace(plan, output_names=names)
        case Scan():
            raise TypeError("a table is renamed where it is read")
        case Aggregate():
            return _renamed_aggregate(plan, names)
        case _:
            assert_never(plan)


def _renamed_aggregate(plan: Aggregate, names: tuple[str, ...]) -> Aggregate:
    if plan.layers:
        last = plan.layers[-1]
        items = tuple(replace(i, name=n) for i, n in zip(last.items, names, strict=True))
        return replace(plan, layers=(*plan.layers[:-1], replace(last, items=items)))
    return replace(plan, outputs=tuple(replace(o, name=n) for o, n in zip(plan.outputs, names, strict=True)))


def with_positional_names(node: Node) -> Node:
    """The same plan with its columns named c0, c1, ..."""
    return _node(with_column_names(node, tuple(f"c{i}" for i in range(len(column_names(node))))))


def replace_core(plan: Node, core: Block, new: Block, hidden: Sequence[str] = ()) -> Node:
    """The plan over a new core. `hidden`: columns that only the new core has; every block above outputs them last."""
    if plan is core:
        return new
    assert isinstance(plan, Block)  # a Select has no core below it
    (part,) = from_items(plan)
    assert part.node is not None
    below = replace(part, node=replace_core(part.node, core, new, hidden))
    extra = tuple(OutputColumn(name, (f"{part.alias}.{quote_ident(name)}",)) for name in hidden)
    return replace(plan, columns=(*plan.columns, *extra), trees=(below,))


def output_names(plan: Plan) -> tuple[str, ...]:
    if not isinstance(plan, Aggregate):
        return column_names(plan)
    return tuple(i.name for i in plan.layers[-1].items) if plan.layers else tuple(o.name for o in plan.outputs)


def _node(plan: Plan) -> Node:
    if isinstance(plan, Aggregate):
        raise TypeError("only the outermost query is folded")
    return plan
