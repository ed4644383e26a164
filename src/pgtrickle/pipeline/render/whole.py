"""A plan as one query with each table in the old state, as of given cuts. Verification evaluates this query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.differentiate import general
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.differentiate.states import ALL_OLD
from pgtrickle.pipeline.plan.nodes import Aggregate, Item, Piece, Plan, fill


def query_as_of(plan: Plan, changed: Mapping[int, ChangedSource]) -> str:
    statement = general.new_statement(changed, is_plain=True)
    if not isinstance(plan, Aggregate):
        sql = statement.render(plan, ALL_OLD)
        return statement.with_clause() + sql
    items = tuple(Item(o.name, _text(plan, o.parts)) for o in plan.outputs)
    sql = statement.render(plan.input.rows(items), ALL_OLD)
    if plan.keys:
        sql += f" GROUP BY {', '.join(f'({k})' for k in plan.keys)}"
    if plan.having is not None:
        sql += f" HAVING {_text(plan, plan.having)}"
    sql += _text(plan, plan.tail)
    for layer in plan.layers:
        outer = ", ".join(f"{i.sql} AS {quote_ident(i.name)}" for i in layer.items)
        where = f" WHERE {layer.where}" if layer.where else ""
        sql = f"SELECT {outer} FROM ({sql}) AS {layer.alias}{where}{layer.tail}"
    return statement.with_clause() + sql


def _text(plan: Aggregate, parts: Sequence[Piece]) -> str:
    return fill(parts, lambda i: plan.keys[i], lambda i: plan.calls[i].sql)
