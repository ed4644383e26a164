"""Splits a load statement into statements over page ranges of one table, whose results add up to its result. Pure.

This requires that each row of the result comes from exactly one row of that table: inner joins, and outer joins that
preserve the table's rows. It is checked on the text of the statement, so that it holds for every kind of plan. Other
statements are not split.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from pgtrickle.model.identifiers import quote_ident

_WHOLE_INPUT = ("group", "having", "distinct", "limit", "offset", "windows", "qualify", "sample")


def page_ranges(pages: int, parts: int) -> list[tuple[int | None, int | None]]:
    """[first, end) of each part; the outermost ranges are open, because the table may have grown."""
    count = max(1, min(parts, pages))
    edges = [None, *(pages * i // count for i in range(1, count)), None]
    return list(pairwise(edges))


def split(load: str, schema: str, name: str, pages: int, parts: int, aggregates: Collection[str]) -> Sequence[str]:
    """Statements that together return the rows of `load`: by page ranges of this table, if it can be split."""
    table = f"{quote_ident(schema)}.{quote_ident(name)}"
    places = list(re.finditer(re.escape(f"{table} AS t") + r"(?![\w$])", load))
    if len(places) != 1 or not _row_by_row(load, schema, name, aggregates):
        return [load]
    before, after = load[: places[0].start()], load[places[0].end() :]
    statements = []
    for first, end in page_ranges(pages, parts):
        bounds = [f"ctid >= '({first},0)'::tid"] if first is not None else []
        bounds += [f"ctid < '({end},0)'::tid"] if end is not None else []
        where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
        statements.append(f"{before}(SELECT * FROM {table}{where}) AS t{after}")
    return statements


def _row_by_row(load: str, schema: str, name: str, aggregates: Collection[str]) -> bool:
    try:
        tree = sqlglot.parse_one(load, read="postgres")
    except (SqlglotError, RecursionError):
        return False
    tables = [t for t in tree.find_all(exp.Table) if t.name == name and t.db == schema]
    if len(tables) != 1 or any(call.name.lower() in aggregates for call in tree.find_all(exp.Anonymous)):
        return False
    node: exp.Expr = tables[0]
    if not _joins_keep(node, None):
        return False
    while node.parent is not None:
        if not _keeps(node.parent, node):
            return False
        node = node.parent
    return isinstance(node, exp.Select)


def _keeps(parent: exp.Expr, child: exp.Expr) -> bool:
    """Whether every row of `parent` comes from one row of `child`."""
    if isinstance(parent, exp.From):
        return True
    if isinstance(parent, exp.Join):
        is_inner = not parent.side and parent.kind in ("", "INNER", "CROSS") and not parent.method
        return is_inner and parent.this is child
    if isinstance(parent, exp.Subquery):  # or a join in parentheses
        is_item = isinstance(parent.parent, exp.From | exp.Join | exp.Subquery)  # not part of an expression
        return is_item and not _has(parent, ("pivots", "sample")) and _joins_keep(parent, child)
    if isinstance(parent, exp.Table):  # the left end of a join that has the child on its right
        return _joins_keep(parent, child)
    if isinstance(parent, exp.Select):
        return _plain(parent) and _joins_keep(parent, child)
    return False


def _plain(select: exp.Select) -> bool:
    if _has(select, _WHOLE_INPUT):
        return False
    return not any(item.find(exp.AggFunc, exp.Window) for item in select.expressions)


def _joins_keep(node: exp.Expr, child: exp.Expr | None) -> bool:
    """Whether the joins that follow the child (or the node itself) preserve its rows: not RIGHT and FULL."""
    joins = node.args.get("joins") or []
    places = [i for i, join in enumerate(joins) if join is child]
    is_left = child is None or child.arg_key in ("this", "from_", "from")
    if not places and not is_left:
        return False
    later = joins[places[0] + 1 :] if places else joins
    return all(j.side in ("", "LEFT") and j.kind in ("", "INNER", "CROSS", "OUTER") for j in later)


def _has(node: exp.Expr, names: Sequence[str]) -> bool:
    return any(node.args.get(name) for name in names)
