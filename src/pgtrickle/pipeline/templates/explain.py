"""Describes the stages of a refresh for a DBA.

The operator tree, the strategy of each operator, the statements, and what runs on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.differentiate import full_join as full
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    Block,
    Concat,
    Distinct,
    Node,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Subquery,
    Text,
    UnionAll,
    Values,
    block_texts,
    children,
    from_items,
    joins,
    subqueries,
)
from pgtrickle.pipeline.templates.recursive import RecursionTemplate
from pgtrickle.pipeline.templates.stages import ReadStage, RefreshStages
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, RegionTemplate, Template
from pgtrickle.pipeline.templates.topk import TopKTemplate

_STRATEGY = {
    "add": "adds signed values and weights exactly (decimal)",
    "least": "keeps the least value; a group whose least value was deleted is read again",
    "greatest": "keeps the greatest value; a group whose greatest value was deleted is read again",
    "reread": "reads each touched group again",
}
_WHOLE_RECURSION = "evaluated whole, before and after"


def explain(stages: RefreshStages) -> dict[str, Any]:
    """The text that `pgtrickle plan` prints, which is stored with the table."""
    if stages.changes is None:
        return {"mode": "FULL", "leaves": [stages.load.statement]}
    tree, read, netted = _tree(stages.changes.read.template)
    return {
        "mode": "DIFFERENTIAL",
        "tree": tree,
        "boundaries": {"read": read, "netted": netted},
        "spark": stages.changes.net.describe(),
        "leaves": sample_statements(stages.changes.read)[:1],
        "load": stages.load.statement,
    }


def _tree(template: Template) -> tuple[list[str], int, int]:
    """The lines of the tree; the line of the operator whose rows the statement over the changes returns; and the line
    of the one that gets them netted. Refreshes count the rows there."""
    tree: list[str] = []
    read = netted = 0
    match template:
        case FoldTemplate():
            netted = _aggregate(template, tree)
            read = len(tree)
            _node(template.rows, 1, tree)
        case TopKTemplate():
            _limit(template, tree)
            netted, read = len(tree) - 1, len(tree)
            _node(template.limit.rows, 1, tree)
        case RegionTemplate():
            what = ", ".join(template.core.region or ()) or "nothing: all rows belong together"
            tree.append(f"Replace by ({what}): what is stored of a touched region goes, what the query yields comes")
            read = len(tree)
            _node(template.plan, 1, tree)
        case RecursionTemplate():
            _node(template.plan, 0, tree)
            tree[1] = tree[1].replace(_WHOLE_RECURSION, "what changes lead to, from the stored rows")
        case BagTemplate():
            _node(template.plan, 0, tree)
        case _:
            assert_never(template)
    return tree, read, netted


def plan_lines(plan: Mapping[str, Any], *, statements: bool) -> Iterator[str]:
    """A plan in words: the tree, what runs where, what would force FULL."""
    yield from plan_words(plan)
    yield from _engine_lines(plan)
    if plan["mode"] != "FULL":
        yield "FULL instead, when:"
        yield from (f"  {reason}" for reason in plan["full_when"])
    if statements:
        yield "Statements:"
        yield from (f"  {sql};" for sql in plan["leaves"])


def plan_words(plan: Mapping[str, Any]) -> Iterator[str]:
    """The part that is specific to the table: the tree, and what runs where."""
    yield f"Mode: {plan['mode']}"
    if plan["mode"] == "FULL":
        yield f"Reason: {plan['reason']}"
        if plan.get("hint"):
            yield f"Hint: {plan['hint']}"
        yield "Every refresh evaluates the whole query and applies the difference."
    else:
        yield "Operators, and what a refresh does for each:"
        yield from (f"  {line}" for line in plan["tree"])
        yield f"In Spark: {plan['spark']}"
        yield "In PostgreSQL: everything else, in the statements that read changes and in the apply"


def _engine_lines(plan: Mapping[str, Any]) -> Iterator[str]:
    yield f"Engine: {plan['engine'] or 'as the setting pg_trickle.engine says'}"
    if plan["last_engine"] is not None:
        because = f", because {plan['engine_reason']}" if plan["engine_reason"] is not None else ""
        yield f"Latest refresh: evaluated by {plan['last_engine']}{because}"
    for mode, obstacle in plan.get("spark_obstacles", {}).items():
        if plan["mode"] in (mode, "DIFFERENTIAL"):  # FULL is part of maintaining a table from its changes
            yield f"{mode} on Spark: {'possible' if obstacle is None else f'not possible, because {obstacle}'}"


def _limit(template: TopKTemplate, tree: list[str]) -> None:
    if template.plan is not template.core:
        tree.append("Project/Filter over the first rows: evaluated by PostgreSQL in the apply")
    tree.append(
        f"Limit{_shown(template.core.tail)}: the first {template.stored_rows} rows are kept beside the table, changes "
        "that sort up to the last of them are added, and the query's own are chosen among them in the apply; "
        f"read again when fewer than {template.needed} are left"
    )


def _aggregate(template: FoldTemplate, tree: list[str]) -> int:
    """Returns the line of the operator that keeps the groups."""
    plan: Aggregate = template.plan
    for layer in reversed(plan.layers):
        tree.append(
            f"Project/Filter over groups{f' where {layer.where}' if layer.where else ''}: "
            "evaluated by PostgreSQL in the apply"
        )
    if plan.is_limited:
        tree.append("Limit: chosen among all groups of the state in the apply")
    if plan.having is not None:
        tree.append("Having: evaluated by PostgreSQL in the apply; groups that fail it are kept as state")
    if not plan.calls and all(len(o.parts) == 1 for o in plan.outputs):
        tree.append("Distinct: the number of equal rows is kept as state")
        return len(tree) - 1
    tree.append(
        f"Aggregate by ({', '.join(plan.keys) or 'nothing: one group'}): folded into the state beside the table"
    )
    line = len(tree) - 1
    tree.extend(f"  {m.call.sql}: {_STRATEGY[m.kind]}" for m in template.measures.measures if m.derived is None)
    return line


def _node(node: Node, depth: int, tree: list[str]) -> None:
    tree.append("  " * depth + _label(node))
    if isinstance(node, Block):
        for part in from_items(node):
            if part.node is not None:
                _node(part.node, depth + 1, tree)
            else:
                tree.append("  " * (depth + 1) + f"Function {_shown(part.call)}: evaluated with each row")
        for sub in (s for text in block_texts(node) for s in subqueries(text)):
            tree.append(
                "  " * (depth + 1) + f"Subquery ({sub.kind}): rows that its change connects with, before and after"
            )
            _node(sub.node, depth + 2, tree)
        return
    for child in children(node):
        _node(child, depth + 1, tree)


def _label(node: Node) -> str:
    match node:
        case Scan():
            return f"Scan {node.relation.schema}.{node.relation.name}: its changes, or itself as of a cut"
        case UnionAll() | Concat():
            return "Union all: the changes of each branch"
        case Distinct():
            return "Distinct: rows equal to a changed one, before and after"
        case SetOperation():
            return f"{node.operator}: rows equal to a changed one, before and after"
        case Recursive():
            return f"Recursive ({node.operator}): {_WHOLE_RECURSION}"
        case Values():
            return "Values"
        case Block():
            return _block(node)
        case Select():
            return _select(node)
        case _:
            assert_never(node)


def _select(node: Select) -> str:
    members = node.source.members if node.source is not None else ()
    label = (
        f"Join of {len(members)}: one term per set of changed tables, joined by PostgreSQL from the changes"
        if len(members) > 1
        else "Project"
    )
    return f"{label}{f' where {node.where}' if node.where else ''}"


def _block(node: Block) -> str:
    where = f" where {_shown(node.where)}" if node.where is not None else ""
    if node.region is not None:
        if not node.region:
            return f"Whole{_shown(node.tail)}: evaluated whole, before and after{where}"
        return f"By ({', '.join(node.region)}){_shown(node.tail)}: the touched of these, before and after{where}"
    kinds = sorted({j.kind for tree in node.trees for j in joins(tree)})
    label = " and ".join(kinds) if kinds else "Project"
    if full.has_unsplit_full_join(node):
        return f"{label}: evaluated whole, before and after the change of each side{where}"
    if "FULL JOIN" in kinds:
        return f"{label}: as a left join and what has no left; rows that the changes connect with{where}"
    return f"{label}: the changes of preserved rows, then rows that the others' changes connect with{where}"


def _shown(text: Text) -> str:
    return "".join("..." if isinstance(p, Subquery) else p for p in text)


def sample_statements(read: ReadStage, rows: int = 1, *, are_copied: bool = False) -> list[str]:
    """The statements of a refresh if all sources, or one of them, have this number of changes, with sample cuts."""
    window = Window(Cut(100, 100, ()), Cut(200, 200, ()))
    changed = {relid: ChangedSource(relid, window, rows, are_copied) for relid in sorted(read.template.relids)}
    alone = [read.delta_statement({r: c}) for r, c in changed.items()] if len(changed) > 1 else []
    return [read.delta_statement(changed), *alone]
