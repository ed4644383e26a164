"""A template in words that a DBA reads.

The operator tree, each operator's strategy, leaf statements, what runs in Spark.
"""

from __future__ import annotations

from typing import Any

from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.nodes import Aggregate, Linear, Scan, UnionAll, scans
from pgtrickle.pipeline.rules.linear import Changed
from pgtrickle.pipeline.templates import BagTemplate, FoldTemplate, Template

_STRATEGY = {
    "add": "adds signed values and weights exactly (decimal)",
    "least": "keeps the least value; a group whose least value was deleted is read again",
    "greatest": "keeps the greatest value; a group whose greatest value was deleted is read again",
    "reread": "reads each touched group again",
}


def explain(template: Template) -> dict[str, Any]:
    tree: list[str] = []
    if isinstance(template, FoldTemplate):
        _aggregate(template, tree)
        _node(template.rows, 1, tree)
        spark = "net changes per group by key, exact sums, identity (xxhash64 of the key)"
    else:
        _node(template.plan, 0, tree)
        spark = "net changes per row, identity (xxhash64 of the row)"
    return {
        "mode": "DIFFERENTIAL",
        "tree": tree,
        "spark": spark,
        "leaves": _leaves(template),
        "load": template.load_statement(),
    }


def _aggregate(template: FoldTemplate, tree: list[str]) -> None:
    plan: Aggregate = template.plan
    for layer in reversed(plan.layers):
        tree.append(
            f"Project/Filter over groups{f' where {layer.where}' if layer.where else ''}: "
            "evaluated by PostgreSQL in the apply"
        )
    if plan.having is not None:
        tree.append("Having: evaluated by PostgreSQL in the apply; groups that fail it are kept as state")
    tree.append(
        f"Aggregate by ({', '.join(plan.keys) or 'nothing: one group'}): folded into the state beside the table"
    )
    tree.extend(f"  {m.call.sql}: {_STRATEGY[m.kind]}" for m in template.measures.measures)


def _node(node: Linear, depth: int, tree: list[str]) -> None:
    indent = "  " * depth
    if isinstance(node, Scan):
        relation = node.relation
        tree.append(f"{indent}Scan {relation.schema}.{relation.name}: its changes, or itself as of a cut")
        return
    if isinstance(node, UnionAll):
        tree.append(f"{indent}Union all: the changes of each branch")
        for branch in node.branches:
            _node(branch, depth + 1, tree)
        return
    members = node.source.members if node.source is not None else ()
    label = (
        f"Join of {len(members)}: one term per set of changed tables, joined by PostgreSQL from the changes"
        if len(members) > 1
        else "Project"
    )
    tree.append(f"{indent}{label}{f' where {node.where}' if node.where else ''}")
    for member in members:
        _node(member.node, depth + 1, tree)


def _leaves(template: Template) -> list[str]:
    """The statements of a refresh in which every source has changed, with sample cuts."""
    window = Window(Cut(100, 100, ()), Cut(200, 200, ()))
    node: Linear = template.plan if isinstance(template, BagTemplate) else template.rows
    changed = {s.relation.relid: Changed(s.relation.relid, window, 1) for s in scans(node)}
    return template.delta_statements(changed)
