"""Decorrelation: the old value of a correlated scalar subquery, computed for all keys of the delta at once.

    in:  (SELECT max(b.y) FROM b WHERE b.k = a.k) in the old state of b
    out: LEFT JOIN (SELECT b.k, max(b.y) AS v FROM old b WHERE b.k IN (SELECT k FROM db) GROUP BY b.k) AS l ON l.k = a.k
         and l.v where a.k is a key of db, else the subquery in the new state

Evaluated row by row, each outer row would search all rows that the old state adds to the table, which is quadratic in
the number of changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.pipeline.differentiate.key_filter import column_of
from pgtrickle.pipeline.differentiate.semijoin_keys import VALUE_EQUALITY_TYPES, correlated_columns
from pgtrickle.pipeline.differentiate.states import DELTA, NEW, OLD, DecorrelatedSubquery, Statement, View
from pgtrickle.pipeline.plan.names import alias_of, aliases_in_text, conjuncts, has_bare_names
from pgtrickle.pipeline.plan.nodes import Block, FromItem, Scan, Subquery, Text, from_items, plain_sql, subqueries
from pgtrickle.pipeline.text.tokens import Cursor, tokenize

VALUE = "__pgt_v"
# The value is also computed for keys that no outer row has. It may consist of these functions, words and operators.
CALLS = frozenset(
    {"COUNT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR", "COALESCE", "NULLIF", "GREATEST", "LEAST"}
)
WORDS = frozenset({"AND", "OR", "NOT", "CASE", "WHEN", "THEN", "ELSE", "DISTINCT", "FILTER", "WHERE"})
OPERATORS = frozenset({"(", ")", ",", ".", "+", "-", "*", "=", "<>", "<", ">", "<=", ">=", "||"})
NUMBERS = frozenset({"NUMERIC", "DOUBLE PRECISION"})
NUMBER_TYPES = frozenset({20, 21, 23, 700, 701, 1700})


def decorrelate(
    statement: Statement, node: Block, sub: Subquery, view: View, alias: str
) -> DecorrelatedSubquery | None:
    """For an aggregate over one changed table, correlated by equality with columns of this block's FROM; else None.

    A key of the delta without old rows is not in the joined relation: its value is the aggregate over no rows.
    """
    inner = sub.node
    if sub.kind != "scalar" or not isinstance(inner, Block) or not _is_one_group(inner):
        return None
    part = from_items(inner)[0]
    if view.state_of(part) != OLD or part.node is None or not statement.is_changed(part.node):
        return None
    correlation = _correlation(node, inner, part)
    if correlation is None:
        return None
    names, outer = correlation.names, [o for o, _ in correlation.pairs]
    changed_keys = _changed_keys(statement, part, correlation)
    before = statement.share(_before(statement, inner, part, correlation, changed_keys), "a")
    same = " AND ".join(f"{alias}.{n} = {o}" for n, o in zip(names, outer, strict=True))
    nothing = statement.render(_of_no_rows(inner), View(NEW))
    new_value = statement.render(inner, View(view.default, {**view.overrides, part.number: NEW}))
    return DecorrelatedSubquery(
        f"LEFT JOIN {before} AS {alias} ON {same}",
        f"SELECT CASE WHEN {alias}.{names[0]} IS NOT NULL THEN {alias}.{VALUE} "
        f"WHEN ({', '.join(outer)}) IN ({changed_keys}) THEN ({nothing}) ELSE ({new_value}) END",
    )


@dataclass(frozen=True, slots=True)
class _Correlation:
    """How a subquery depends on the row around it.

    `pairs` are columns of that row and of the subquery's table that its conditions compare by equality, `attnums` the
    numbers of the latter. `conditions` are the other ones, which name the subquery's table alone.
    """

    pairs: list[tuple[str, str]]
    attnums: tuple[int, ...]
    conditions: list[Text]

    @property
    def names(self) -> list[str]:
        return [f"__pgt_k{i}" for i in range(len(self.pairs))]


def _correlation(node: Block, inner: Block, part: FromItem) -> _Correlation | None:
    """None where the subquery depends on the row by more than equality of columns, or its value may fail."""
    own_aliases = {alias_of(part)}
    pairs: list[tuple[str, str]] = []
    conditions: list[Text] = []
    for condition in conjuncts(inner.where) if inner.where is not None else []:
        if (pair := correlated_columns(condition, part, own_aliases)) is not None:
            pairs.append(pair)
        elif subqueries(condition) or aliases_in_text(condition) - own_aliases or has_bare_names(plain_sql(condition)):
            return None
        else:
            conditions.append(condition)
    columns = [_column(node, part, *pair) for pair in pairs]
    value = plain_sql(inner.columns[0].text)
    if not pairs or None in columns or aliases_in_text((value,)) - own_aliases or has_bare_names(value):
        return None
    if not _is_one_for_all_keys(value, part):
        return None
    return _Correlation(pairs, tuple(c for c in columns if c is not None), conditions)


def _changed_keys(statement: Statement, part: FromItem, correlation: _Correlation) -> str:
    """A query of the keys of all changes that fulfil the subquery's own conditions."""
    names, conditions = correlation.names, correlation.conditions
    where = f" WHERE {' AND '.join(f'({plain_sql(c)})' for c in conditions)}" if conditions else ""
    changes = statement.render_item(part, View(DELTA), [])
    listed = ", ".join(f"{i} AS {n}" for (_, i), n in zip(correlation.pairs, names, strict=True))
    keys = statement.share(f"SELECT DISTINCT {listed} FROM {changes}{where}", "k")
    return f"SELECT {', '.join(f'k.{n}' for n in names)} FROM {keys} AS k"


def _is_one_group(node: Block) -> bool:
    """Whether a block is an aggregate over all rows of one table that pass WHERE."""
    if node.region != () or node.tail or node.distinct_on is not None or node.limit is not None:
        return False
    if len(node.columns) != 1 or subqueries(node.columns[0].text):
        return False
    return len(node.trees) == 1 and isinstance(node.trees[0], FromItem) and isinstance(node.trees[0].node, Scan)


def _is_one_for_all_keys(value: str, part: FromItem) -> bool:
    """Whether a value can be computed for keys of no outer row: it never fails, and is one row for each key.

    Accepts only what is known not to divide, not to read numbers from texts and not to return sets.
    """
    tokens = tokenize(value)
    padded = ["", "", *(t.key for t in tokens), ""]
    for token, earlier, before, after in zip(tokens, padded, padded[1:], padded[3:], strict=False):
        if token.is_name:
            if after == "(" and (before == "." or token.key not in CALLS | WORDS):
                return False
        elif token.key == "::":
            is_constant = _is_literal(before) or (before == ")" and _is_literal(earlier))
            if not is_constant and not (after == "TEXT" or (after in NUMBERS and _has_numbers_only(value, part))):
                return False
        elif not _is_literal(token.key) and token.key not in OPERATORS:
            return False
    return True


def _is_literal(key: str) -> bool:
    return key[:1].isdigit() or "'" in key


def _has_numbers_only(value: str, part: FromItem) -> bool:
    cursor = Cursor(value)
    dots = [i for i, t in enumerate(cursor.tokens) if t.key == "."]
    columns = [column_of(Block((), (part,), None), cursor.text(i - 1, i + 2)) for i in dots]
    return all(f is not None and f[1].typid in NUMBER_TYPES for f in columns)


def _column(node: Block, part: FromItem, outer: str, inner: str) -> int | None:
    """The number of the inner correlation column; None unless both have one type with equality by value."""
    outer_column, inner_column = column_of(node, outer), column_of(Block((), (part,), None), inner)
    if (
        outer_column is None
        or inner_column is None
        or not outer_column[1].typid == inner_column[1].typid in VALUE_EQUALITY_TYPES
    ):
        return None
    return inner_column[1].attnum


def _before(statement: Statement, node: Block, part: FromItem, correlation: _Correlation, changed_keys: str) -> str:
    assert isinstance(part.node, Scan)
    rows, is_old = statement.scan_as_of(part.node, part.alias, key_filter=(correlation.attnums, changed_keys))
    keys = [inner for _, inner in correlation.pairs]
    listed = ", ".join(f"{k} AS __pgt_k{i}" for i, k in enumerate(keys))
    where = " AND ".join([*(f"({plain_sql(c)})" for c in correlation.conditions), is_old])
    value = plain_sql(node.columns[0].text)
    return f"SELECT {listed}, {value} AS {VALUE} FROM ({rows}) AS {part.alias} WHERE {where} GROUP BY {', '.join(keys)}"


def _of_no_rows(node: Block) -> Block:
    return Block(node.columns, node.trees, ("false",), node.region)
