"""Whole rows of an alias for USING columns.

PostgreSQL prints a row of such an alias as a ROW of its columns, without their names:

    in:  SELECT row_to_json(x.*) FROM a JOIN b USING (i) AS x         ({"i": 1})
    printed: SELECT row_to_json(ROW(a.i)) FROM (a JOIN b USING (i) AS x)    ({"f1": 1})
"""

from __future__ import annotations

from pgtrickle.pipeline.text.tokens import Cursor, identifier


def with_named_rows(sql: str) -> str:
    """The text with x.* for each ROW of all columns of an alias x for USING, in their order."""
    cursor = Cursor(sql)
    aliases = _aliases(cursor)
    if not aliases:
        return sql
    pieces, begin, index = [], 0, 0
    while index + 1 < cursor.stop:
        if cursor.tokens[index].key == "ROW" and cursor.tokens[index + 1].key == "(":
            closing = cursor.closing(index + 1)
            alias = aliases.get(tuple(_column(cursor, a, b) for a, b in cursor.split(index + 2, closing, ",")))
            if alias is not None:
                pieces += [sql[begin : cursor.tokens[index].start], f"{alias}.*"]
                begin, index = cursor.tokens[closing].end, closing
        index += 1
    return "".join([*pieces, sql[begin:]])


def _aliases(cursor: Cursor) -> dict[tuple[str, ...], str]:
    """Aliases for USING, by the names of their columns."""
    aliases = {}
    for index in range(cursor.stop - 1):
        if cursor.tokens[index].key == "USING" and cursor.tokens[index + 1].key == "(":
            closing = cursor.closing(index + 1)
            if closing + 2 < cursor.stop and cursor.tokens[closing + 1].key == "AS":
                names = cursor.inside(index + 1, closing + 1).names()
                aliases[names] = cursor.text(closing + 2, closing + 3)
    return aliases


def _column(cursor: Cursor, start: int, stop: int) -> str:
    """The name of a merged column: a.i, i, or COALESCE(a.i, b.i)."""
    last = stop - 1
    while last > start and cursor.tokens[last].key == ")":
        last -= 1
    token = cursor.tokens[last]
    return identifier(cursor.sql[token.start : token.end])
