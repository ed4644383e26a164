"""Refuses expressions that tell equal values apart, where PostgreSQL returns any of several equal values.

DISTINCT, UNION, INTERSECT, EXCEPT, keys of groups, min(), max() and aggregates of DISTINCT values return one of several
equal values (1.0 and 1.00, '1 day' and '24:00:00'). A stream table may show another one than PostgreSQL does at that
moment: the values are equal. A cast to text, scale(), `*=` or a division above them makes different values of them,
which the stream table would contain. Such a query is evaluated as a whole.

    SELECT DISTINCT a FROM t                                   maintained: one of the equal values
    SELECT a + 1 FROM (SELECT DISTINCT a FROM t) AS s          maintained: the results are equal, too
    SELECT a::text FROM (SELECT DISTINCT a FROM t) AS s        refused, if equal values of a may have several texts

An expression that is not known to give equal results for equal values is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.codec import BPCHAR, FLOAT4, FLOAT8, NUMERIC, SqlType
from pgtrickle.pipeline.plan.grouping import EXPRESSION_WORDS
from pgtrickle.pipeline.plan.names import alias_of
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    AggregateCall,
    Block,
    Concat,
    Distinct,
    From,
    Input,
    Node,
    Piece,
    Plan,
    Recursive,
    Scan,
    Select,
    SetOperation,
    Subquery,
    Text,
    Tree,
    UnionAll,
    Values,
    column_names,
    fill,
    joins,
    tree_items,
)
from pgtrickle.pipeline.templates.canonical import Describe, loose_columns, loose_expressions
from pgtrickle.pipeline.text.tokens import CLAUSE_ENDS, Cursor, identifier, strip_parentheses, token_keys, tokenize

Tokens = tuple[str, ...]

_OPERATOR = re.compile(r"[-+*/<>=~!@#%^&|`?]+")
_COMPARISONS = frozenset({"=", "<>", "!=", "<", ">", "<=", ">="})
_BOOLEAN = frozenset({"AND", "OR", "NOT", "IS", "IN", "ISNULL", "NOTNULL", "CASE", "WHEN"})
_SORTED = frozenset({"ASC", "DESC", "NULLS", "NULLS FIRST", "NULLS LAST"})
_BEFORE_KEYS = frozenset({"ORDER BY", "PARTITION BY", "GROUP BY", "HAVING", "BY"})
_OPERAND_WORDS = EXPRESSION_WORDS | _BEFORE_KEYS | {"ORDER", "LIMIT", "OFFSET", "WHERE", "ON"}
# Functions that give equal results for equal arguments: of any type, of numbers, of floats.
_EQUAL = frozenset({"COALESCE", "GREATEST", "LEAST", "NULLIF", "MIN", "MAX", "ARRAY_AGG", "ROW", "LAG", "LEAD"})
_EQUAL |= {"FIRST_VALUE", "LAST_VALUE"}
_EQUAL_NUMBERS = frozenset({"SUM", "ABS", "SIGN"})
_ROUNDED = frozenset({"ROUND", "CEIL", "CEILING", "FLOOR", "TRUNC"})  # numeric: the value decides the digits, too
_EQUAL_FLOATS = _ROUNDED | {"AVG", "SQRT", "EXP", "LN"}
_NUMBERS = frozenset({NUMERIC, FLOAT4, FLOAT8})
_EXACT_NUMBERS = frozenset({"INTEGER", "BIGINT", "SMALLINT", "INT"})
_UNKNOWN = SqlType(0, -1, "unknown", 0, "b")  # of a query that PostgreSQL describes only within its outer query
_FLOATS = frozenset({"DOUBLE PRECISION", "REAL"})


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of several equal values. `type`: its type; None if all equal values have one text."""

    what: str
    type: Callable[[], SqlType | None]


Choices = tuple[Choice, ...]
Shown = Mapping[str, Choices]  # of output columns


@dataclass(frozen=True, slots=True)
class Scope:
    """The values that an expression may use: columns by name and by (alias, name), and expressions by their tokens."""

    columns: Mapping[tuple[str, ...], Choices]
    expressions: Mapping[Tokens, Choices]
    trees: tuple[Tree, ...] = ()  # FROM of this query and of the outer ones

    def with_item(self, alias: str, shown: Shown, names: Iterable[str]) -> Scope:
        """With an item of FROM, whose columns hide those of the outer query."""
        columns = dict(self.columns)
        for name in names:
            columns[(name,)] = columns[alias, name] = shown.get(name, ())
        return replace(self, columns=columns)

    @property
    def has_choices(self) -> bool:
        return any(self.columns.values()) or any(self.expressions.values())


EMPTY = Scope({}, {})


def check_equal_values(plan: Plan, describe: Describe) -> None:
    """Raises NotDifferentiableError for an expression that tells equal values apart."""
    checker = _Checker(describe)
    if isinstance(plan, Aggregate):
        checker.aggregate(plan)
    else:
        checker.shown(plan, EMPTY)


class _Checker:
    def __init__(self, describe: Describe) -> None:
        self.describe = describe

    # -- plans
    # ----------------------------------------------------------------------------------------------------------

    def shown(self, node: Node, outer: Scope) -> Shown:
        match node:
            case Scan() | Values():
                return {}
            case UnionAll() | Concat():
                return _by_position(node, node.branches, [self.shown(b, outer) for b in node.branches])
            case Distinct():
                return self._chosen(node, [node.node], outer)
            case SetOperation():
                return self._chosen(node, [node.left, node.right], outer)
            case Recursive():
                both = (node.first, node.step)
                return _by_position(node, both, [self.shown(b, outer) for b in both])
            case Select():
                scope = self._members(node.source, outer)
                self._choices((node.where,) if node.where is not None else (), scope)
                return {i.name: self._choices((i.sql,), scope) for i in node.items}
            case Block():
                return self._block(node, outer)
            case _:
                assert_never(node)

    def _chosen(self, node: Distinct | SetOperation, below: Sequence[Node], outer: Scope) -> Shown:
        for each in below:
            self.shown(each, outer)

        @cache
        def types() -> Mapping[int, SqlType] | None:
            return loose_columns(node, self.describe, outer.trees)

        return {name: (_choice(quote_ident(name), types, i),) for i, name in enumerate(column_names(node))}

    def _block(self, node: Block, outer: Scope) -> Shown:
        scope = self._trees(node.trees, outer)
        self._choices(node.where or (), scope)
        source, grouped = Input(node.trees, node.where), node.grouped
        if grouped is not None and grouped.columns == tuple(c.text for c in node.columns):
            groups = self._groups(source, node.region or (), grouped.calls, scope, outer.trees)
            self._pieces(grouped.having or (), groups)
            return {c.name: self._pieces(p, groups) for c, p in zip(node.columns, grouped.outputs, strict=True)}
        if node.region is not None:
            scope = self._with_keys(node, source, scope, outer.trees)
        for text in (node.distinct_on, node.order, node.tail):
            self._choices(text or (), scope)
        return {c.name: self._choices(c.text, scope) for c in node.columns}

    def aggregate(self, plan: Aggregate) -> None:
        source = plan.input.source
        scope = self._trees(source, EMPTY) if isinstance(source, tuple) else self._members(source, EMPTY)
        self._choices(plan.input.where or (), scope)
        groups = self._groups(plan.input, plan.keys, plan.calls, scope, ())
        self._pieces(plan.having or (), groups)
        self._pieces(plan.tail, groups)
        shown: Shown = {o.name: self._pieces(o.parts, groups) for o in plan.outputs}
        for layer in plan.layers:
            scope = EMPTY.with_item(identifier(layer.alias), shown, shown)
            for text in (layer.where, layer.tail):
                self._choices((text or "",), scope)
            shown = {i.name: self._choices((i.sql,), scope) for i in layer.items}

    def _members(self, source: From | None, outer: Scope) -> Scope:
        scope = outer
        if source is not None:
            for member in source.members:
                shown = self.shown(member.node, outer)
                scope = scope.with_item(identifier(member.alias), shown, column_names(member.node))
            self._choices(("".join(p if isinstance(p, str) else f" m{p} " for p in source.parts),), scope)
        return scope

    def _trees(self, trees: tuple[Tree, ...], outer: Scope) -> Scope:
        scope = replace(outer, trees=(*outer.trees, *trees))
        for tree in trees:
            for part in tree_items(tree):
                if part.node is None:
                    self._choices(part.call, scope)
                else:
                    scope = scope.with_item(alias_of(part), self.shown(part.node, scope), column_names(part.node))
            for join in joins(tree):
                self._choices(join.on or (), scope)
        return scope

    # -- groups
    # ----------------------------------------------------------------------------------------------------------

    def _groups(
        self, source: Input, keys: Sequence[str], calls: Sequence[AggregateCall], scope: Scope, outer: tuple[Tree, ...]
    ) -> Scope:
        """The names that stand for keys and calls in expressions over the groups."""
        chosen = [c for c in calls if c.function in ("min", "max") or (c.distinct and c.function != "count")]
        types = self._types(source, [*keys, *(c.argument or "" for c in chosen)], outer)
        columns: dict[tuple[str, ...], Choices] = {}
        for i, key in enumerate(keys):
            self._choices((key,), scope)
            columns[(f"__pgt_k{i}",)] = (_choice(key, types, key),)
        for i, call in enumerate(calls):
            below = self._choices((call.sql,), scope)
            is_chosen = call in chosen and call.argument is not None
            columns[(f"__pgt_c{i}",)] = (_choice(call.sql, types, call.argument),) if is_chosen else below
        return Scope(columns, {})

    def _with_keys(self, node: Block, source: Input, scope: Scope, outer: tuple[Tree, ...]) -> Scope:
        """Extremes of windows, and keys and extremes of groups whose output is not split into parts, as expressions."""
        texts = [p for c in node.columns for p in c.text if isinstance(p, str)]
        extremes = {call: argument for text in texts for call, argument in _extremes(text)}
        is_grouped = bool(node.tail) and str(node.tail[0]).startswith(" GROUP BY ")
        chosen = ({k: k for k in node.region or ()} if is_grouped else {}) | extremes
        types = self._types(source, list(chosen.values()), outer)
        for expression in chosen:
            self._choices((expression,), scope)
        return replace(scope, expressions={_keys(sql): (_choice(sql, types, of),) for sql, of in chosen.items()})

    def _types(
        self, source: Input, expressions: Sequence[str], outer: tuple[Tree, ...]
    ) -> Callable[[], Mapping[str, SqlType] | None]:
        @cache
        def types() -> Mapping[str, SqlType] | None:
            return loose_expressions(source, [e for e in dict.fromkeys(expressions) if e], self.describe, outer)

        return types

    def _pieces(self, pieces: Sequence[Piece], groups: Scope) -> Choices:
        return self._choices((fill(pieces, '"__pgt_k{}"'.format, '"__pgt_c{}"'.format),), groups)

    # -- expressions
    # ----------------------------------------------------------------------------------------------------------

    def _choices(self, text: Text, scope: Scope) -> Choices:
        """The equal values that an expression may return one of. Raises if it tells them apart."""
        pieces, columns = [], dict(scope.columns)
        for i, piece in enumerate(text):
            if isinstance(piece, Subquery):
                columns[(f"__pgt_q{i}",)] = tuple(c for cs in self.shown(piece.node, scope).values() for c in cs)
                pieces.append(f'"__pgt_q{i}"')
            else:
                pieces.append(piece)
        inner = replace(scope, columns=columns)
        if not inner.has_choices:
            return ()
        expression = _Expression("".join(pieces))
        return tuple(
            c for start, stop, choices in expression.uses(inner) for c in choices if expression.returns(c, start, stop)
        )


def _by_position(node: Node, branches: Sequence[Node], shown: Sequence[Shown]) -> Shown:
    """The columns of a union: what one of its branches shows."""
    columns: dict[str, Choices] = {}
    for i, name in enumerate(column_names(node)):
        columns[name] = tuple(c for b, s in zip(branches, shown, strict=True) for c in s.get(column_names(b)[i], ()))
    return columns


def _choice(what: str, types: Callable[[], Mapping[Any, SqlType] | None], of: object) -> Choice:
    def type_() -> SqlType | None:
        known = types()
        return known.get(of) if known is not None else _UNKNOWN

    return Choice(what, type_)


def _extremes(text: str) -> Iterator[tuple[str, str]]:
    """Calls of min() and max() with their arguments."""
    cursor = Cursor(text)
    for index, token in enumerate(cursor.tokens[:-1]):
        if token.key in ("MIN", "MAX") and cursor.tokens[index + 1].key == "(":
            closing = cursor.closing(index + 1)
            yield cursor.text(index, closing + 1), cursor.text(index + 2, closing)


class _Expression:
    """The tokens of an expression. pg_get_viewdef puts each operator and its operands in parentheses."""

    def __init__(self, text: str) -> None:
        self.keys: list[str] = []
        self.names: list[str] = []  # identifiers; empty for other tokens
        end = -1
        for token in tokenize(text):
            if token.start == end and _OPERATOR.fullmatch(self.keys[-1]) and _OPERATOR.fullmatch(token.key):
                self.keys[-1] += token.key
            else:
                self.keys.append(token.key)
                self.names.append(identifier(text[token.start : token.end]) if token.is_name else "")
            end = token.end
        for index in range(len(self.keys) - 1, -1, -1):
            if self.keys[index] == "OPERATOR" and self._key(index + 1) == "(":  # OPERATOR(schema.=)
                closing = self._closing(index + 1)
                self.keys[index : closing + 1] = [self.keys[closing - 1]]
                self.names[index : closing + 1] = [""]

    def uses(self, scope: Scope) -> Iterator[tuple[int, int, Choices]]:
        """The places of values that are one of several equal ones."""
        index, longest = 0, sorted(scope.expressions, key=len, reverse=True)
        while index < len(self.keys):
            stop = index + 1
            choices: Choices = ()
            before = self.keys[index - 1] if index else ""
            found = next((e for e in longest if tuple(self.keys[index : index + len(e)]) == e), None)
            if before in (".", "::"):
                pass
            elif found is not None:
                stop, choices = self._with_window(index + len(found)), scope.expressions[found]
            elif self.names[index] and self._key(index + 1) == "." and self._key(index + 3) != "(":
                stop, choices = index + 3, scope.columns.get(tuple(self.names[index : index + 3 : 2]), ())
            elif self.names[index] and self._key(index + 1) not in ("(", "."):
                choices = scope.columns.get((self.names[index],), ())
            if choices:
                yield index, stop, choices
            index = stop

    def returns(self, choice: Choice, start: int, stop: int) -> bool:
        """Whether the expression returns a value that equals the one at this place; False if it is the same for all of
        them. Raises if it is not known to be."""
        while True:
            before, after = self._key(start - 1), self._key(stop)
            if self._opening(start) < 0 and before in ("", ",", *_BEFORE_KEYS) and after in ("", ",", *CLAUSE_ENDS):
                return before == after == ""
            if {before, after} & (_COMPARISONS | _BOOLEAN) or after in _SORTED or before in _BEFORE_KEYS:
                return False
            if before == "FROM" and self._key(start - 2) == "DISTINCT":
                return False
            if before == "DISTINCT":
                start -= 1
            elif before in ("THEN", "ELSE") and after in ("WHEN", "ELSE", "END"):
                start, stop = self._case(start)
            elif after in (".", "COLLATE"):
                stop += 4 if self._key(stop + 2) == "." else 2
            elif after == "[":
                stop = self._closing(stop) + 1
            elif before in ("(", "[", ",") and after in (")", "]", ","):
                opening = self._opening(start)
                if self._is_decided(opening, start):
                    return False
                if (call := self._call(opening)) is None:
                    if (type_ := choice.type()) is None or (
                        type_.base == NUMERIC and self._key(opening - 1) in _ROUNDED
                    ):
                        return False
                    call = self._number_call(choice, type_, opening)
                start, stop = call
            elif (type_ := choice.type()) is None:
                return False
            elif after == "::":
                stop, is_decided = self._cast(stop + 1, choice, type_)
                if is_decided:
                    return False
            elif {before, after} & {"+", "-", "*", "/"} and type_.base in _NUMBERS:
                if "/" in (before, after) and type_.base == NUMERIC:
                    raise _seen(choice, type_)
                start, stop = self._around(start)
            else:
                raise _seen(choice, type_)

    def _is_decided(self, opening: int, start: int) -> bool:
        """Whether parentheses around a value give the same for all equal values."""
        if self._key(opening - 1) in ("IN", "ANY", "ALL", "SOME", "EXISTS", "OVER", "FILTER", "GROUP", "COUNT"):
            return True
        level = 0
        for index in range(start - 1, opening, -1):
            level += {")": 1, "]": 1, "(": -1, "[": -1}.get(self.keys[index], 0)
            if level == 0 and self.keys[index] in _BEFORE_KEYS:
                return True  # ORDER BY of an aggregate
        return False

    def _call(self, opening: int) -> tuple[int, int] | None:
        """The call, array, row or parentheses around a value, if they give equal results for equal values of any type;
        None for another function."""
        word = self._key(opening - 1)
        if word == "ARRAY" or (word in _EQUAL and self._key(opening - 2) != "."):
            return opening - 1, self._call_end(opening)
        if not (self.names[opening - 1] if opening else "") or word in _OPERAND_WORDS:
            return opening, self._closing(opening) + 1
        return None

    def _number_call(self, choice: Choice, type_: SqlType, opening: int) -> tuple[int, int]:
        word = self._key(opening - 1)
        is_equal = word in _EQUAL_NUMBERS if type_.base == NUMERIC else word in _EQUAL_NUMBERS | _EQUAL_FLOATS
        if type_.base not in _NUMBERS or not is_equal or self._key(opening - 2) == ".":
            raise _seen(choice, type_)
        return opening - 1, self._call_end(opening)

    def _call_end(self, opening: int) -> int:
        return self._with_window(self._closing(opening) + 1)

    def _with_window(self, stop: int) -> int:
        """The end of a call, with FILTER, WITHIN GROUP and OVER."""
        while self._key(stop) in ("FILTER", "OVER", "WITHIN", "GROUP"):
            stop = self._closing(stop + 1) + 1 if self._key(stop + 1) == "(" else stop + 1
            if self._key(stop - 1) == "OVER":
                stop += 1  # the name of a window
        return stop

    def _cast(self, at: int, choice: Choice, type_: SqlType) -> tuple[int, bool]:
        """The end of the name of a type, and whether the cast to it gives the same for all equal values."""
        words, stop = [self.keys[at]], at + 1
        while self._key(stop) in ("VARYING", "PRECISION", ".") or self._key(stop - 1) == ".":
            words.append(self._key(stop))
            stop += 1
        has_typmod = self._key(stop) == "("
        if has_typmod:
            stop = self._closing(stop) + 1
        name = " ".join(words)
        if type_.base == NUMERIC:
            decided = name in _EXACT_NUMBERS | _FLOATS or (name == "NUMERIC" and has_typmod)
            same = name == "NUMERIC"
        elif type_.base == BPCHAR:
            decided, same = name in ("TEXT", "CHARACTER VARYING"), False  # without trailing blanks
        else:
            decided = type_.base in _NUMBERS and name in _EXACT_NUMBERS | {"NUMERIC"}
            same = type_.base in _NUMBERS and name in _FLOATS
        if not decided and not same:
            raise _seen(choice, type_)
        return stop, decided

    def _case(self, start: int) -> tuple[int, int]:
        level, first = 0, start - 1
        while level or self.keys[first] != "CASE":
            level += {"END": 1, "CASE": -1}.get(self.keys[first], 0)
            first -= 1
        level, last = 0, start
        while level or self.keys[last] != "END":
            level += {"CASE": 1, "END": -1}.get(self.keys[last], 0)
            last += 1
        return first, last + 1

    def _around(self, at: int) -> tuple[int, int]:
        """The parentheses around an operator."""
        opening = self._opening(at)
        return (opening, self._closing(opening) + 1) if opening >= 0 else (0, len(self.keys))

    def _opening(self, at: int) -> int:
        level = 0
        for index in range(at - 1, -1, -1):
            if self.keys[index] in (")", "]"):
                level += 1
            elif self.keys[index] in ("(", "["):
                if level == 0:
                    return index
                level -= 1
        return -1

    def _closing(self, at: int) -> int:
        level = 0
        for index in range(at, len(self.keys)):
            level += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.keys[index], 0)
            if level == 0:
                return index
        return len(self.keys)

    def _key(self, index: int) -> str:
        return self.keys[index] if 0 <= index < len(self.keys) else ""


def _seen(choice: Choice, type_: SqlType) -> NotDifferentiableError:
    return NotDifferentiableError(Reason.of(ReasonCode.EQUAL_VALUES_SEEN, expression=choice.what, type=type_.name))


def _keys(sql: str) -> Tokens:
    tokens = tokenize(sql)
    return token_keys(tokens, *strip_parentheses(tokens, 0, len(tokens)))
