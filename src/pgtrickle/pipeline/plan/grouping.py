"""GROUP BY, aggregates and HAVING: which parts of an output expression are keys, which are aggregate calls.

Everything else in the expression stays text that PostgreSQL evaluates from the state of the group.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.plan.nodes import Aggregate, AggregateCall, CallPlace, Input, KeyPlace, Output
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses, token_keys

if TYPE_CHECKING:
    from pgtrickle.pipeline.plan.clauses import Clauses

Range = tuple[int, int]


def aggregate_at(cursor: Cursor, index: int, aggregates: Set[str]) -> bool:
    """Whether an aggregate is called at this token; `aggregates` are the names of all aggregates of the database."""
    token = cursor.tokens[index]
    if not token.is_name or index + 1 >= cursor.stop or cursor.tokens[index + 1].key != "(":
        return False
    return token.key.strip('"').lower() in aggregates


def is_aggregated(
    cursor: Cursor,
    items: Sequence[tuple[str, int, int]],
    group: Sequence[Range],
    having: Range | None,
    aggregates: Set[str],
) -> bool:
    if group or having is not None:
        return True
    return any(_aggregates_here(cursor, start, stop, aggregates) for _, start, stop in items)


def _aggregates_here(cursor: Cursor, start: int, stop: int, aggregates: Set[str]) -> bool:
    """An aggregate call in an expression: not one of a subquery, and not one that is a window function."""
    index = start
    while index < stop:
        if cursor.tokens[index].key == "(" and cursor.is_query(index + 1, cursor.closing(index)):
            index = cursor.closing(index)
        elif aggregate_at(cursor, index, aggregates) and not is_windowed(cursor, index, stop):
            return True
        index += 1
    return False


def is_windowed(cursor: Cursor, index: int, stop: int) -> bool:
    end = cursor.closing(index + 1) + 1
    if end < stop and cursor.tokens[end].key == "FILTER":
        end = cursor.closing(end + 1) + 1
    return end < stop and cursor.tokens[end].key == "OVER"


def parse_aggregate(
    cursor: Cursor, clauses: Clauses, source: Input, aggregates: Set[str], *, keeps_order: bool = False
) -> Aggregate:
    """`keeps_order`: the outer query depends on the order of its rows."""
    reader = _Reader(cursor, aggregates)
    for start, stop in clauses.group:
        reader.add_group_key(start, stop)
    outputs = tuple(Output(name, reader.parts(start, stop)) for name, start, stop in clauses.items)
    having = reader.parts(*clauses.having) if clauses.having is not None else None
    tail: list[str | KeyPlace | CallPlace] = []
    if clauses.limit is not None or keeps_order:
        for number, passage in enumerate(cursor.split(*clauses.order, ",") if clauses.order is not None else []):
            bare = cursor.without_direction(passage)
            tail += [", " if number else " ORDER BY ", *reader.parts(*bare), f" {cursor.text(bare[1], passage[1])}"]
    if clauses.limit is not None:
        tail.append(f" {cursor.text(*clauses.limit)}")
    return Aggregate(source, tuple(reader.keys), tuple(reader.calls), outputs, having, (), tuple(tail))


class _Reader:
    def __init__(self, cursor: Cursor, aggregates: Set[str]) -> None:
        self.cursor = cursor
        self.aggregates = aggregates
        self.keys: list[str] = []
        self.key_tokens: list[tuple[str, ...]] = []
        self.calls: list[AggregateCall] = []

    def add_group_key(self, start: int, stop: int) -> int:
        start, stop = strip_parentheses(self.cursor.tokens, start, stop)
        first = self.cursor.tokens[start].key if start < stop else "("
        if start == stop or first in ("GROUPING SETS", "CUBE", "ROLLUP", "GROUPING"):
            raise NotDifferentiableError(Reason.of(ReasonCode.GROUPING_SETS))
        tokens = token_keys(self.cursor.tokens, start, stop)
        if tokens in self.key_tokens:
            return self.key_tokens.index(tokens)
        self.keys.append(self.cursor.text(start, stop))
        self.key_tokens.append(tokens)
        return len(self.keys) - 1

    def parts(self, start: int, stop: int) -> tuple[str | KeyPlace | CallPlace, ...]:
        """Splits an expression into verbatim text, keys and calls."""
        cursor = self.cursor
        pieces: list[str | KeyPlace | CallPlace] = []
        text_from = start
        index = start

        def flush(upto: int) -> None:
            text = cursor.text(text_from, upto)
            if text:
                pieces.append(f" {text} ")

        while index < stop:
            match = self._key_at(index, stop)
            if match is not None:
                place: KeyPlace | CallPlace = KeyPlace(match[0])
                end = match[1]
            elif aggregate_at(cursor, index, self.aggregates):
                call, end = self._call(index, stop)
                place = CallPlace(self._add_call(call))
            elif cursor.tokens[index].key == "GROUPING" and cursor.tokens[index + 1].key == "(":
                flush(index)  # without grouping sets each key is grouped by
                pieces.append(" 0 ")
                index = text_from = cursor.closing(index + 1) + 1
                continue
            elif cursor.tokens[index].key == "EXTRACT":
                index += 3  # EXTRACT ( field: a word that is no column
                continue
            elif cursor.tokens[index].key == "OPERATOR":
                index = cursor.closing(index + 1) + 1
                continue
            elif self._column_at(index, stop):
                # PostgreSQL has accepted the query, so it belongs to a key that was not recognised here. Grouping by
                # the column itself would be a finer grouping: never guess.
                text = cursor.text(index, self._column_end(index, stop))
                raise NotDifferentiableError(Reason.of(ReasonCode.NOT_GROUPED, expression=text))
            else:
                index += 1
                continue
            flush(index)
            pieces.append(place)
            index = text_from = end
        flush(stop)
        return tuple(pieces)

    def _key_at(self, index: int, stop: int) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        if index > 0 and self.cursor.tokens[index - 1].key in (".", "::"):
            return None
        for number, key in enumerate(self.key_tokens):
            end = index + len(key)
            if end > stop or token_keys(self.cursor.tokens, index, end) != key:
                continue
            if end < stop and self.cursor.tokens[end].key in (".", "(") and self.cursor.tokens[end - 1].is_name:
                continue
            if len(key) > 1 and not self._whole_operand(index, end):
                continue
            if best is None or end > best[1]:
                best = (number, end)
        return best

    def _whole_operand(self, start: int, end: int) -> bool:
        """Whether tokens start..end are one operand: `a + b` is not, in `a + b * c`, where precedence would differ.

        PostgreSQL prints every operator expression in parentheses, so an operand that is an expression has them
        around it.
        """
        tokens = self.cursor.tokens
        previous = tokens[start - 1] if start > 0 else tokens[start]
        if tokens[start].key == "(" and previous.is_name and previous.key not in EXPRESSION_WORDS | _BEFORE_OPERANDS:
            return False  # the arguments of a call
        if self._atom_end(start, end) == end and self._type_ends(start, end):
            return True
        before = tokens[start - 1].key if start > 0 else ","
        after = tokens[end].key if end < len(tokens) else ","
        return before in ("(", ",", "SELECT") and after in (")", ",", "AS", "FROM")

    def _atom_end(self, start: int, stop: int) -> int:
        """The end of the operand at `start` that needs no parentheses.

        A name, call, literal, CASE or parenthesis, with subscripts and casts, which bind before any operator.
        """
        tokens, at = self.cursor.tokens, start
        if tokens[at].key == "(":
            at = self.cursor.closing(at) + 1
        elif tokens[at].key == "CASE":
            depth = 0
            while at < stop:
                depth += {"CASE": 1, "END": -1}.get(tokens[at].key, 0)
                at += 1
                if depth == 0:
                    break
        elif tokens[at].is_name:
            at = self._names_end(at, stop)
            if at < stop and tokens[at].key == "(":
                at = self.cursor.closing(at) + 1
        else:
            at += 1
        while at < stop and tokens[at].key in ("[", "::"):
            at = self._brackets_end(at, stop) if tokens[at].key == "[" else self._type_end(at + 1, stop)
        return at

    def _names_end(self, at: int, stop: int) -> int:
        at += 1
        while at + 1 < stop and self.cursor.tokens[at].key == "." and self.cursor.tokens[at + 1].is_name:
            at += 2
        return at

    def _brackets_end(self, at: int, stop: int) -> int:
        depth = 0
        while at < stop:
            depth += {"[": 1, "]": -1}.get(self.cursor.tokens[at].key, 0)
            at += 1
            if depth == 0:
                break
        return at

    def _type_end(self, at: int, stop: int) -> int:
        tokens = self.cursor.tokens
        at = self._names_end(at, stop)
        while at < stop:
            if tokens[at].key == "(":
                at = self.cursor.closing(at) + 1
            elif tokens[at].key == "[":
                at = self._brackets_end(at, stop)
            elif set(tokens[at].key.split()) <= _TYPE_WORDS:
                at += 1
            else:
                break
        return at

    def _type_ends(self, start: int, end: int) -> bool:
        """Whether a cast at the end of start..end is complete: `a::bit` is not, in `a::bit varying(3)`."""
        if end >= len(self.cursor.tokens):
            return True
        after = self.cursor.tokens[end].key
        is_cast = any(t.key == "::" for t in self.cursor.tokens[start:end])
        if is_cast and (after == "[" or set(after.split()) <= _TYPE_WORDS):
            return False
        return after not in ("(", ".")

    def _column_at(self, index: int, stop: int) -> bool:
        """A column reference is alias.column, or a bare name where the query has one relation."""
        cursor = self.cursor
        token = cursor.tokens[index]
        if not token.is_name or (index > 0 and cursor.tokens[index - 1].key in ("::", ".", "COLLATE")):
            return False
        following = cursor.tokens[index + 1].key if index + 1 < stop else ""
        if following == ".":
            return True
        return token.key.startswith('"') or (following != "(" and token.key not in EXPRESSION_WORDS)

    def _column_end(self, index: int, stop: int) -> int:
        end = index + 1
        while end + 1 < stop and self.cursor.tokens[end].key == "." and self.cursor.tokens[end + 1].is_name:
            end += 2
        if end < stop and self.cursor.tokens[end].key == "(":
            raise NotDifferentiableError(Reason.of(ReasonCode.QUALIFIED_FUNCTION))
        return end

    def _call(self, index: int, stop: int) -> tuple[AggregateCall, int]:
        cursor = self.cursor
        start = index
        while start >= 2 and cursor.tokens[start - 1].key == ".":
            start -= 2
        if start < index:
            raise NotDifferentiableError(Reason.of(ReasonCode.QUALIFIED_AGGREGATE))
        name = cursor.tokens[index].key.strip('"').lower()
        closing = cursor.closing(index + 1)
        first = index + 2
        distinct = cursor.tokens[first].key == "DISTINCT"
        if distinct:
            first += 1
        argument = cursor.text(first, closing)
        end = closing + 1
        if end + 1 < stop and cursor.tokens[end].key == "WITHIN":
            end = cursor.closing(end + 2) + 1
        filter_text = None
        if end + 1 < stop and cursor.tokens[end].key == "FILTER":
            filter_end = cursor.closing(end + 1)
            if cursor.tokens[end + 2].key != "WHERE":
                raise NotDifferentiableError(Reason.of(ReasonCode.FILTER_WITHOUT_WHERE))
            filter_text = cursor.text(end + 3, filter_end)
            end = filter_end + 1
        if cursor.has_at_depth_0(first, closing, "ORDER BY", ","):
            name = f"{name} of several"  # identified by its text only
        return AggregateCall(
            name, None if argument == "*" else argument, filter_text, distinct, cursor.text(index, end)
        ), end

    def _add_call(self, call: AggregateCall) -> int:
        if call not in self.calls:
            self.calls.append(call)
        return self.calls.index(call)


_BEFORE_OPERANDS = frozenset({"SELECT", "HAVING"})
# Words that follow the first one of a type's name.
_TYPE_WORDS = frozenset({"VARYING", "PRECISION", "WITH", "WITHOUT", "TIME", "ZONE"})
# Words that pg_get_viewdef prints unquoted inside expressions and that are not columns. Columns of these names are
# quoted there when they are reserved; for the others (type names and the like) the preceding `::` or the query's own
# keys decide.
EXPRESSION_WORDS = frozenset(
    """
    AND OR NOT IS NULL TRUE FALSE CASE WHEN THEN ELSE END IN ANY ALL SOME BETWEEN SYMMETRIC LIKE ILIKE SIMILAR
    TO ESCAPE PLACING VARIADIC DISTINCT FROM COLLATE AT TIME ZONE AS ARRAY ROW CAST OPERATOR UNKNOWN ISNULL NOTNULL
    YEAR MONTH DAY HOUR MINUTE SECOND INTERVAL WITH WITHOUT PRECISION VARYING DOUBLE CHARACTER LEADING TRAILING BOTH FOR
    DOCUMENT NORMALIZED LOCAL CURRENT_DATE CURRENT_TIMESTAMP CURRENT_TIME LOCALTIMESTAMP LOCALTIME
    CURRENT_USER SESSION_USER USER CURRENT_ROLE
    """.split()  # noqa: SIM905 - a hundred quoted words are not easier to read
)
