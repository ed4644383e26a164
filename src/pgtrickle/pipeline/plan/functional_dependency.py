"""Columns that are functionally dependent on a primary key in GROUP BY.

A delta statement has subqueries in the place of tables, and PostgreSQL knows no keys of subqueries. So GROUP BY gets
these columns, too. The groups are unchanged: rows with the same key are one row of the table.

    in:  SELECT o.id, o.name, count(*) FROM o JOIN i ON i.o = o.id GROUP BY o.id
    out: SELECT o.id, o.name, count(*) FROM o JOIN i ON i.o = o.id GROUP BY o.id, o.name
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.plan.clauses import Clauses
from pgtrickle.pipeline.plan.grouping import aggregate_at, is_windowed
from pgtrickle.pipeline.plan.nodes import FromItem, Scan, Tree, tree_items
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses

Range = tuple[int, int]

_NUMERIC, _FLOATS = 1700, frozenset({700, 701})


def add_dependent_columns(cursor: Cursor, clauses: Clauses, trees: tuple[Tree, ...], aggregates: Set[str]) -> None:
    """Adds such columns to `group`, or to `dependent` where equal values can have different texts: as group keys of a
    state they would lose their digits."""
    tables = [p for tree in trees for p in tree_items(tree)]
    passages = (strip_parentheses(cursor.tokens, *passage) for passage in clauses.group)
    grouped = {column for passage in passages if (column := _column(cursor, tables, *passage)) is not None}
    dependent: dict[tuple[int, int], Range] = {}
    for passage in _references(cursor, clauses, aggregates):
        column = _column(cursor, tables, *passage)
        if column is None or column in grouped:
            continue
        number, _ = column
        if not _has_key(tables[number], {attnum for n, attnum in grouped if n == number}):
            continue
        if _holds_for_all_rows(tables[number]):
            dependent.setdefault(column, passage)
        elif any(passage == (start, stop) for _, start, stop in clauses.items):
            raise NotDifferentiableError(Reason.of(ReasonCode.NOT_GROUPED, expression=cursor.text(*passage)))
    if any(_has_digits(tables[number], attnum) for number, attnum in dependent):
        clauses.dependent = list(dependent.values())
    else:
        clauses.group = [*clauses.group, *dependent.values()]


def _references(cursor: Cursor, clauses: Clauses, aggregates: Set[str]) -> Iterator[Range]:
    """Names outside of aggregates, also those of subqueries, which may name columns of this query."""
    passages = [(start, stop) for _, start, stop in clauses.items]
    passages += [p for p in (clauses.having, clauses.order, clauses.on, clauses.window) if p is not None]
    for start, stop in passages:
        index = start
        while index < stop:
            token = cursor.tokens[index]
            if aggregate_at(cursor, index, aggregates) and not is_windowed(cursor, index, stop):
                index = cursor.closing(index + 1) + 1
                while index < stop and cursor.tokens[index].key in ("FILTER", "WITHIN", "GROUP"):
                    index = cursor.closing(index + 1) + 1 if cursor.tokens[index + 1].key == "(" else index + 1
                continue
            end = index + 1
            while end + 1 < stop and cursor.tokens[end].key == "." and cursor.tokens[end + 1].is_name:
                end += 2
            if token.is_name:
                yield index, end
            index = end


def _column(cursor: Cursor, tables: list[FromItem], start: int, stop: int) -> tuple[int, int] | None:
    """The number of the FROM item, and of its column, that a name means; None where it is not a table's column."""
    written = [identifier(cursor.text(i, i + 1)) for i in range(start, stop, 2)]
    if len(written) > 2 or stop - start != 2 * len(written) - 1 or not cursor.tokens[stop - 1].is_name:
        return None
    for number, part in enumerate(tables):
        is_named = len(tables) == 1 if len(written) == 1 else identifier(part.alias) == written[0]
        if is_named and isinstance(part.node, Scan):
            attnum = next((a for a, name in part.node.exposes if name == written[-1]), None)
            return None if attnum is None else (number, attnum)
    return None


def _has_key(part: FromItem, attnums: Set[int]) -> bool:
    assert isinstance(part.node, Scan)
    return bool(part.node.relation.key) and attnums >= set(part.node.relation.key)


def _holds_for_all_rows(part: FromItem) -> bool:
    """Whether the key is unique in all rows: true for partitions, not for tables that inherit."""
    assert isinstance(part.node, Scan)
    return part.node.relation.kind == "p" or not part.node.relation.has_children


def _has_digits(part: FromItem, attnum: int) -> bool:
    assert isinstance(part.node, Scan)
    column = next(c for c in part.node.relation.columns if c.attnum == attnum)
    return column.typid in _FLOATS or (column.typid == _NUMERIC and column.typmod == -1)
