"""Whether columns determine the rows of a FROM clause: by unique keys, and by the equalities of its conditions.

A column is determined if all rows that agree in the given columns have equal values in it; an item of FROM, if they
have the same row of it, or none (NULLs of an outer join).

    in:  fx WHERE fx.cur = o.cur, with o of an outer query and primary key (cur, day); given: fx.day
    out: fx.cur is determined by the equality, fx by its key: all rows

    in:  o JOIN it ON it.oid = o.id, with primary keys (id) and (oid, line); given: o.id, it.line
    out: o by its key, it.oid by the equality, it by its key: all rows

Equal values may have different texts (1.0 and 1.00), so an expression is only determined if the items that it reads
are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import assert_never

from pgtrickle.model.catalog import Column as SourceColumn
from pgtrickle.pipeline.plan.grouping import EXPRESSION_WORDS
from pgtrickle.pipeline.plan.names import alias_of, conjuncts, outer_aliases
from pgtrickle.pipeline.plan.nodes import (
    Block,
    Concat,
    Distinct,
    FromItem,
    Join,
    Node,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Text,
    Tree,
    UnionAll,
    Values,
    column_names,
    subqueries,
    tree_items,
)
from pgtrickle.pipeline.plan.using import column_list_start, item_columns, merged_sides
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses, token_keys, tokenize

Tokens = tuple[str, ...]
Column = tuple[str, str]  # alias and name

# Types from which a cast keeps different values different: PostgreSQL casts a column before it compares it with
# another type, or if it is a varchar.
_INJECTIVE_CASTS = {
    "TEXT": frozenset({25, 1043}),
    "INTEGER": frozenset({21, 23}),
    "BIGINT": frozenset({20, 21, 23}),
    "NUMERIC": frozenset({20, 21, 23, 1700}),
}
_TIMESTAMP = 1114
_FIRST_USER_OID = 16384  # the first oid of user-defined types


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of FROM and WHERE of a SELECT.

    `sets`: names of set-returning functions. `is_open`: an unqualified name is a column of the outer query.
    """

    trees: tuple[Tree, ...]
    where: Text | None
    sets: Set[str]
    is_open: bool = False

    def determined_by(self, given: Collection[Tokens]) -> Determined:
        return _closure(self, given)

    @property
    def items(self) -> tuple[FromItem, ...]:
        return tuple(p for tree in self.trees for p in tree_items(tree))

    def column(self, tokens: Tokens) -> Column | None:
        """The column of these items that an expression is; None if it is anything else."""
        items = self.items
        if len(tokens) == 3 and tokens[1] == ".":
            alias, name = _name(tokens[0]), _name(tokens[2])
            return (alias, name) if any(alias_of(p) == alias for p in items) else None
        if len(tokens) == 1 and len(items) == 1 and not self.is_open and _name(tokens[0]) in item_columns(items[0]):
            return alias_of(items[0]), _name(tokens[0])
        return None

    def is_scalar(self, tokens: Tokens) -> bool:
        """Whether an expression is a column of a built-in type that is no array."""
        column = self.column(tokens)
        type_ = _column_type(self, column) if column is not None else None
        return type_ is not None and type_.typid < _FIRST_USER_OID and not type_.type.endswith("[]")


@dataclass(frozen=True, slots=True)
class Determined:
    rows: Rows
    given: frozenset[Tokens]
    columns: frozenset[Column]
    items: frozenset[str]

    @property
    def is_all(self) -> bool:
        """Whether the rows are determined: no two of them agree in the given columns."""
        return bool(self.rows.items) and all(alias_of(p) in self.items for p in self.rows.items)

    def has(self, tokens: Tokens) -> bool:
        """Whether an expression has equal values in all rows that agree in the given columns."""
        if tokens in self.given or self.rows.column(tokens) in self.columns:
            return True
        read = _aliases(self.rows, tokens)
        return read is not None and read <= self.items and not _calls(tokens, self.rows.sets)


@dataclass(frozen=True, slots=True)
class _Equality:
    """`column` equals another column, or an expression (None), in all rows that agree in the items `needs`."""

    column: Column
    other: Column | None
    needs: frozenset[str]


def _closure(rows: Rows, given: Collection[Tokens]) -> Determined:
    columns = {c for tokens in given if (c := rows.column(tokens)) is not None}
    items: set[str] = set()
    equalities = list(_equalities(rows))
    while True:
        before = len(columns), len(items)
        for equality in equalities:
            if equality.needs <= items and (equality.other is None or equality.other in columns):
                columns.add(equality.column)
        for part in rows.items:
            alias = alias_of(part)
            if alias not in items and _is_item_determined(rows, part, {n for a, n in columns if a == alias}, items):
                items.add(alias)
                columns |= {(alias, name) for name in item_columns(part)}
        if before == (len(columns), len(items)):
            return Determined(rows, frozenset(given), frozenset(columns), frozenset(items))


# -- equalities
# --------------------------------------------------------------------------------------------------------------


def _equalities(rows: Rows) -> Iterator[_Equality]:
    if rows.where is not None:
        yield from _of_condition(rows, rows.where, frozenset())
    for tree in rows.trees:
        yield from _of_tree(rows, tree, is_nullable=False)


def _of_tree(rows: Rows, tree: Tree, *, is_nullable: bool) -> Iterator[_Equality]:
    """`is_nullable`: the tree is on the nullable side of an outer join, so that its columns may be NULL."""
    if isinstance(tree, FromItem):
        return
    left = is_nullable or tree.kind in ("RIGHT JOIN", "FULL JOIN")
    right = is_nullable or tree.kind in ("LEFT JOIN", "FULL JOIN")
    yield from _of_tree(rows, tree.left, is_nullable=left)
    yield from _of_tree(rows, tree.right, is_nullable=right)
    if tree.kind in ("JOIN", "CROSS JOIN"):
        for equality in _of_join(rows, tree, frozenset()):
            # A column that equals another one is NULL together with it; one that equals a constant may be NULL alone.
            if not is_nullable or equality.other is not None:
                yield equality
    elif tree.kind in ("LEFT JOIN", "RIGHT JOIN"):
        kept, other = (tree.left, tree.right) if tree.kind == "LEFT JOIN" else (tree.right, tree.left)
        inside = {alias_of(p) for p in tree_items(other)}
        # With the same preserved row, either all rows have a match or the only one has NULLs.
        for equality in _of_join(rows, tree, frozenset(alias_of(p) for p in tree_items(kept))):
            if equality.column[0] in inside:
                yield equality


def _of_join(rows: Rows, join: Join, needs: frozenset[str]) -> Iterator[_Equality]:
    if join.on is not None:
        yield from _of_condition(rows, join.on, needs)
    for _, left, right in merged_sides(join):
        sides = [rows.column(_keys(side)) for side in (left, right)]
        if sides[0] is not None and sides[1] is not None:
            yield _Equality(sides[0], sides[1], needs)
            yield _Equality(sides[1], sides[0], needs)


def _of_condition(rows: Rows, condition: Text, needs: frozenset[str]) -> Iterator[_Equality]:
    for conjunct in conjuncts(condition):
        if subqueries(conjunct):
            continue
        cursor = Cursor("".join(str(piece) for piece in conjunct))
        start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
        sides = cursor.split(start, stop, "=")
        if len(sides) != 2 or stop - start != 1 + sum(b - a for a, b in sides):
            continue
        left, right = (token_keys(cursor.tokens, *strip_parentheses(cursor.tokens, a, b)) for a, b in sides)
        for one, other in ((left, right), (right, left)):
            yield from _equality(rows, one, other, needs)


def _equality(rows: Rows, one: Tokens, other: Tokens, needs: frozenset[str]) -> Iterator[_Equality]:
    column, same = _compared(rows, one), _compared(rows, other)
    if column is None or not _is_injective(_type(rows, column), _type(rows, same) if same is not None else 0):
        return
    if same is not None:
        yield _Equality(column, same, needs)
    elif other[0] not in ("ANY", "ALL", "SOME") and (read := _aliases(rows, other)) is not None:
        yield _Equality(column, None, needs | read)


def _is_injective(type_: int, other: int) -> bool:
    """Whether no two values of a type equal the same value of another one. Of two times without a time zone, one may
    be missing in the session's time zone: both equal the same time with a time zone."""
    return type_ != 0 and (type_ != _TIMESTAMP or other == _TIMESTAMP)


def _compared(rows: Rows, tokens: Tokens) -> Column | None:
    """The column of a side of an equality, also behind a cast that keeps its values different."""
    if len(tokens) > 3 and tokens[-2] == "::" and tokens[0] == "(" and tokens[-3] == ")":
        column = rows.column(tokens[1:-3])
        return column if column is not None and _type(rows, column) in _INJECTIVE_CASTS.get(tokens[-1], ()) else None
    return rows.column(tokens)


def _type(rows: Rows, column: Column) -> int:
    """The type of a column, a domain's base type; 0 if it is not the column of a table."""
    column_type = _column_type(rows, column)
    return column_type.base if column_type is not None else 0


def _column_type(rows: Rows, column: Column) -> SourceColumn | None:
    node = next((p.node for p in rows.items if alias_of(p) == column[0]), None)
    match node:
        case Scan():
            numbers = {name: attnum for attnum, name in node.exposes}
            return next((c for c in node.relation.columns if c.attnum == numbers.get(column[1])), None)
        case Select():
            texts = {i.name: _keys(i.sql) for i in node.items}
            below = _rows_of_select(node, rows.sets)
        case Block():
            texts, below = _texts(node), _rows_of_block(node, rows.sets)
        case _:
            return None
    inner = below.column(texts[column[1]]) if column[1] in texts else None
    return _column_type(below, inner) if inner is not None else None


def _aliases(rows: Rows, tokens: Tokens) -> frozenset[str] | None:
    """The items that an expression reads, without those of an outer query; None if that is not certain."""
    own = {alias_of(p) for p in rows.items}
    aliases = set()
    if any(key in ("SELECT", "VALUES", "WITH") for key in tokens):
        return None
    for reference in columns_in(tokens):
        if len(reference) == 3:
            aliases.add(_name(reference[0]))
        elif (column := rows.column(reference)) is not None:
            aliases.add(column[0])
        else:
            return None
    return frozenset(aliases & own)


# -- items of FROM
# --------------------------------------------------------------------------------------------------------------


def _is_item_determined(rows: Rows, part: FromItem, names: Set[str], items: Set[str]) -> bool:
    own = {alias_of(p) for p in rows.items}
    if part.node is not None:
        return outer_aliases(part.node) & own <= items and determines(part.node, names, rows.sets)
    read = _aliases_of_call(rows, part)
    return read is not None and read <= items and _ordinality(part) in names


def _aliases_of_call(rows: Rows, part: FromItem) -> frozenset[str] | None:
    if subqueries(part.call):
        return None
    text = "".join(str(piece) for piece in part.call)
    tokens = tokenize(text)
    end = next((i for i, t in enumerate(tokens) if t.key == "WITH ORDINALITY"), None)
    end = next((i for i, t in enumerate(tokens) if t.key == "WITH"), 0) if end is None else end
    return _aliases(rows, token_keys(tokens, 0, end))


def _ordinality(part: FromItem) -> str | None:
    """The column of WITH ORDINALITY, which numbers the rows of a function: the last one of the column list."""
    text = part.call[-1] if part.call else ""
    if not isinstance(text, str) or "ORDINALITY" not in " ".join(t.key for t in tokenize(text)):
        return None
    start = column_list_start(text)
    listed = [t for t in tokenize(text)[start:] if t.is_name] if start else []
    return identifier(text[listed[-1].start : listed[-1].end]) if listed else None


def determines(node: Node, names: Set[str], sets: Set[str]) -> bool:
    """Whether no two rows of a plan agree in these columns."""
    match node:
        case Scan():
            relation = node.relation
            exposed = dict(node.exposes)
            # The key of a table does not cover those that inherit from it.
            is_unique = relation.kind == "p" or not relation.has_children
            return is_unique and bool(relation.key) and all(exposed.get(a) in names for a in relation.key)
        case Select():
            texts = {i.name: _keys(i.sql) for i in node.items}
            return _are_rows_determined(_rows_of_select(node, sets), texts, names)
        case Block():
            return _is_block_determined(node, names, sets)
        case Distinct():
            return names >= set(column_names(node)) or determines(node.node, names, sets)
        case SetOperation():
            return not node.operator.endswith("ALL") and names >= set(column_names(node))
        case UnionAll() | Concat() | Recursive() | Values():
            return False
        case _:
            assert_never(node)


def _is_block_determined(node: Block, names: Set[str], sets: Set[str]) -> bool:
    texts, rows = _texts(node), _rows_of_block(node, sets)
    if any(_calls(_keys(piece), sets) for c in node.columns for piece in c.text if isinstance(piece, str)):
        return False  # several rows for each row of FROM
    is_grouped = bool(node.tail) and isinstance(node.tail[0], str) and node.tail[0].startswith(" GROUP BY ")
    if not is_grouped:
        return _are_rows_determined(rows, texts, names)
    if node.grouped is None or node.region is None:
        return False
    shown = rows.determined_by([texts[n] for n in names if n in texts])
    return all(shown.has(_keys(key)) for key in node.region)


def _are_rows_determined(rows: Rows, texts: dict[str, Tokens], names: Set[str]) -> bool:
    if any(_calls(tokens, rows.sets) for tokens in texts.values()):
        return False  # several rows for each row of FROM
    return rows.determined_by([texts[n] for n in names if n in texts]).is_all


def _rows_of_select(node: Select, sets: Set[str]) -> Rows:
    """FROM and WHERE of inner joins: all their conditions hold for all rows."""
    source = node.source
    if source is None:
        return Rows((), None, sets)
    items = tuple(FromItem(i, m.node, m.alias) for i, m in enumerate(source.members))
    cursor = Cursor("".join(p if isinstance(p, str) else f"m{p}" for p in source.parts))
    conditions = [node.where] if node.where is not None else []
    for index, token in enumerate(cursor.tokens):
        if token.key == "ON":
            inner = cursor.inside(index + 1, cursor.stop)
            conditions.append(cursor.text(*inner.until(",", "JOIN", "CROSS")))
    where = " AND ".join(f"({c})" for c in conditions)
    return Rows(items, (where,) if where else None, sets)


def _calls(tokens: Tokens, names: Set[str]) -> bool:
    return any(following == "(" and key.strip('"').lower() in names for key, following in pairwise(tokens))


def _texts(node: Block) -> dict[str, Tokens]:
    return {c.name: _keys("".join(str(p) for p in c.text)) for c in node.columns if not subqueries(c.text)}


def _rows_of_block(node: Block, sets: Set[str]) -> Rows:
    return Rows(node.trees, node.where, sets, is_open=bool(outer_aliases(node)))


# -- tokens
# --------------------------------------------------------------------------------------------------------------


def columns_in(tokens: Tokens) -> list[Tokens]:
    """The column references of an expression: alias.column, or a bare name."""
    columns, index = [], 0
    while index < len(tokens):
        key = tokens[index]
        is_name = key.startswith('"') or (key[:1].isalpha() or key[:1] == "_")
        if not is_name or (index and tokens[index - 1] in ("::", "OVER")) or "'" in key:
            index += 1
            continue
        following = tokens[index + 1] if index + 1 < len(tokens) else ""
        if following == "." and index + 2 < len(tokens):
            if tokens[index - 1 : index] == ("(",) and tokens[index - 2 : index - 1] == ("OPERATOR",):
                index += 3
                continue
            if index + 3 >= len(tokens) or tokens[index + 3] != "(":
                columns.append(tokens[index : index + 3])
            index += 3
            continue
        if following != "(" and (key.startswith('"') or key not in _WORDS):
            columns.append((key,))
        index += 1
    return columns


_WORDS = EXPRESSION_WORDS | {"PARTITION BY", "ORDER BY", "ROWS", "RANGE", "GROUPS", "PRECEDING", "FOLLOWING", "CURRENT"}
_WORDS |= {"UNBOUNDED", "EXCLUDE", "TIES", "OTHERS", "GROUP", "NO", "OVER", "FILTER", "WHERE", "WITHIN", "ASC", "DESC"}
_WORDS |= {"NULLS", "FIRST", "LAST", "USING", "SELECT"}


def _keys(sql: str) -> Tokens:
    tokens = tokenize(sql)
    return token_keys(tokens, *strip_parentheses(tokens, 0, len(tokens)))


def _name(key: str) -> str:
    return key[1:-1].replace('""', '"') if key.startswith('"') else key.lower()
