"""PostgreSQL's plan of a statement that was executed, from EXPLAIN (ANALYZE, FORMAT JSON). Pure.

Conditions are omitted, because they may contain values. Rows and times are totals of all executions of an operator;
below a Gather the processes run in parallel, so the time is that of one process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pgtrickle.model.operators import Operator

_BUFFER = re.compile(r"changes_(\d+)")


def operator(node: Mapping[str, Any], names: Mapping[int, str], processes: int = 1) -> Operator:
    """`names`: names of sources by oid, for their change buffers."""
    loops = node.get("Actual Loops", 0)
    below = node["Workers Launched"] + 1 if "Workers Launched" in node else processes
    inputs = tuple(operator(each, names, below) for each in node.get("Plans", ()))
    rows = round(node.get("Actual Rows", 0) * loops)
    return Operator(_label(node, names), rows, node.get("Actual Total Time", 0.0) * loops / processes, inputs)


def _label(node: Mapping[str, Any], names: Mapping[int, str]) -> str:
    words = [node["Subplan Name"] + ":"] if "Subplan Name" in node else []
    if node.get("Join Type", "Inner") != "Inner":
        words.append(node["Join Type"])
    words.append(node["Node Type"])
    if "Index Name" in node:
        words.append(f"using {node['Index Name']}")
    if (relation := node.get("Relation Name") or node.get("CTE Name") or node.get("Function Name")) is not None:
        buffer = _BUFFER.fullmatch(relation)
        words.append(f"on changes of {names.get(int(buffer[1]), buffer[1])}" if buffer else f"on {relation}")
    return " ".join(words)
