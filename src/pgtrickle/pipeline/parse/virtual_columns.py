"""Virtual generated columns: a table that has some is read as a subquery that computes them.

FROM sales                -- total is GENERATED ALWAYS AS (price * qty)
FROM (SELECT sales.price, (sales.price * sales.qty)::numeric(8,2) AS total FROM shop.sales) AS sales
"""

from __future__ import annotations

from collections.abc import Collection

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.text.tokens import Cursor


def subquery(relation: Relation, columns: Collection[Column]) -> str:
    """The text of the subquery with these columns of the table."""
    alias = quote_ident(relation.name)
    listed = [f"{_value(column, alias)} AS {quote_ident(column.name)}" for column in columns]
    return f"SELECT {', '.join(listed)} FROM {quote_ident(relation.schema)}.{alias}"


def _value(column: Column, alias: str) -> str:
    if column.virtual is None:
        return f"{alias}.{quote_ident(column.name)}"
    expression, *names = column.virtual
    return qualified(expression, names, alias)


def qualified(expression: str, names: Collection[str], alias: str) -> str:
    """An expression as pg_get_expr() prints it, with its columns qualified.

    A word that is taken for a column by mistake (EXTRACT(year FROM at) of a table with a column year) makes the
    expression invalid, so PostgreSQL refuses it.
    """
    cursor = Cursor(expression)
    columns = {written for name in names for written in (name if name == name.lower() else "", quote_ident(name))}
    pieces, begin = [], 0
    for i, token in enumerate(cursor.tokens):
        before = cursor.tokens[i - 1].key if i else ""
        after = cursor.tokens[i + 1].key if i + 1 < len(cursor.tokens) else ""
        if expression[token.start : token.end] in columns and before not in (".", "::") and after not in ("(", "."):
            pieces.append(f"{expression[begin : token.start]}{alias}.")
            begin = token.start
    return "".join([*pieces, expression[begin:]])
