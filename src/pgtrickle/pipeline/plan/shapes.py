"""Small rewritings of plans: the simplest node for a shape, unions, other names."""

from __future__ import annotations

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
    names,
    parts,
    plain,
    subs,
)


def simplest(block: Block) -> Select | Block:
    """A block that is linear in all it reads, as a Select."""
    if block.region is not None or any(subs(c.text) for c in block.columns):
        return block
    source = input_of(block.trees, block.where)
    if isinstance(source.source, tuple):
        return block
    items = tuple(Item(c.name, plain(c.text)) for c in block.columns)
    return Select(items, source.source, plain(block.where) if block.where is not None else None)


def input_of(trees: tuple[Tree, ...], where: Text | None) -> Input:
    """FROM and WHERE in their linear form where they have one."""
    if where is not None and subs(where):
        return Input(trees, where)
    if not trees:
        return Input(None, where)
    members: list[Member] = []
    found: list[str | int] = []
    for number, tree in enumerate(trees):
        if number:
            found.append(", ")
        if not _flatten(tree, found, members):
            return Input(trees, where)
    return Input(From(tuple(found), tuple(members)), where)


def _flatten(tree: Tree, found: list[str | int], members: list[Member]) -> bool:
    match tree:
        case FromItem():
            if tree.is_lateral or not isinstance(tree.node, Scan | Select | UnionAll):
                return False
            found.append(len(members))
            members.append(Member(tree.node, tree.alias))
            return True
        case Join():
            return _flatten_join(tree, found, members)
        case _:
            assert_never(tree)


def _flatten_join(tree: Join, found: list[str | int], members: list[Member]) -> bool:
    if tree.kind not in ("JOIN", "CROSS JOIN") or (tree.on is not None and subs(tree.on)):
        return False
    found.append("(")
    if not _flatten(tree.left, found, members):
        return False
    found.append(f" {tree.kind} ")
    if not _flatten(tree.right, found, members):
        return False
    if tree.on is not None:
        found.append(f" ON {plain(tree.on)}")
    if tree.using is not None:
        found.append(f" USING {tree.using}")
    found.append(")")
    return True


def united(left: Node, right: Node) -> Node:
    """UNION ALL, which is linear when both sides are."""
    if isinstance(left, Select | UnionAll) and isinstance(right, Select | UnionAll):
        first = left.branches if isinstance(left, UnionAll) else (left,)
        return UnionAll((*first, right))
    first_all = left.branches if isinstance(left, Concat | UnionAll) else (left,)
    return Concat((*first_all, right))


def renamed(plan: Plan, wanted: tuple[str, ...]) -> Plan:
    """The same plan with these output names (a view's or a CTE's own column names win over those of its query)."""
    match plan:
        case UnionAll() | Concat():
            first = renamed(plan.branches[0], wanted)
            return replace(plan, branches=(first, *plan.branches[1:]))  # type: ignore[arg-type]
        case Select():
            return replace(plan, items=tuple(replace(i, name=n) for i, n in zip(plan.items, wanted, strict=True)))
        case Block():
            return replace(plan, columns=tuple(replace(c, name=n) for c, n in zip(plan.columns, wanted, strict=True)))
        case Distinct():
            return Distinct(_node(renamed(plan.node, wanted)))
        case SetOperation():
            return replace(plan, left=_node(renamed(plan.left, wanted)))
        case Values():
            return replace(plan, names=wanted)
        case Recursive():
            return replace(plan, shown=wanted)
        case Scan():
            raise TypeError("a table is renamed where it is read")
        case Aggregate():
            return _renamed_aggregate(plan, wanted)
        case _:
            assert_never(plan)


def _renamed_aggregate(plan: Aggregate, wanted: tuple[str, ...]) -> Aggregate:
    if plan.layers:
        last = plan.layers[-1]
        items = tuple(replace(i, name=n) for i, n in zip(last.items, wanted, strict=True))
        return replace(plan, layers=(*plan.layers[:-1], replace(last, items=items)))
    return replace(plan, outputs=tuple(replace(o, name=n) for o, n in zip(plan.outputs, wanted, strict=True)))


def positional(node: Node) -> Node:
    """The same plan with its columns named c0, c1, ..."""
    return _node(renamed(node, tuple(f"c{i}" for i in range(len(names(node))))))


def lifted(plan: Node, core: Block, new: Block, column: str | None = None) -> Node:
    """The plan over a new core. `column`: one that only the new core has, which every block above it now shows last."""
    if plan is core:
        return new
    assert isinstance(plan, Block)  # a Select has no core below it
    (part,) = parts(plan)
    assert part.node is not None
    below = replace(part, node=lifted(part.node, core, new, column))
    extra = (OutputColumn(column, (f"{part.alias}.{quote_ident(column)}",)),) if column is not None else ()
    return replace(plan, columns=(*plan.columns, *extra), trees=(below,))


def output_names(plan: Plan) -> tuple[str, ...]:
    if not isinstance(plan, Aggregate):
        return names(plan)
    return tuple(i.name for i in plan.layers[-1].items) if plan.layers else tuple(o.name for o in plan.outputs)


def _node(plan: Plan) -> Node:
    if isinstance(plan, Aggregate):
        raise TypeError("only the outermost query is folded")
    return plan
