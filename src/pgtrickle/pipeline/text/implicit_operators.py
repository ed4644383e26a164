"""Where a query compares values without naming the operator: JOIN USING, row IN (SELECT), IS DISTINCT FROM, NULLIF and
CASE x WHEN.

PostgreSQL resolved `=` along the author's search_path, and the printed text does not name the operator. Each of these
places can be rewritten with an explicit operator. The rules rely on the format of pg_get_viewdef: joins and comparisons
are in parentheses, and a bare name is that of a column which USING has merged, or of the only item of FROM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.model.texts import is_null
from pgtrickle.pipeline.text.tokens import JOIN_WORDS, Cursor

Range = tuple[int, int]
_AFTER_ITEM = ("ON", "USING", ",", *JOIN_WORDS)


@dataclass(frozen=True, slots=True)
class ImplicitComparison:
    """A construct that compares `width` pairs of values by operators that it does not name."""

    kind: str  # USING, IN, DISTINCT, NULLIF, CASE
    start: int  # token
    stop: int  # token after it
    width: int

    @property
    def is_maintained(self) -> bool:
        """Whether the rewritten construct can be maintained from changes."""
        return self.kind != "IN"


def implicit_comparisons(sql: str) -> list[ImplicitComparison]:
    """In the order of their start."""
    cursor = Cursor(sql)
    comparisons = []
    for index, token in enumerate(cursor.tokens):
        place = {"USING": _using, "IN": _in, "IS": _distinct, "NULLIF": _nullif, "CASE": _case}.get(token.key)
        if place is not None and (one := place(cursor, index)) is not None:
            comparisons.append(one)
    return sorted(comparisons, key=lambda p: (p.start, -p.stop))


def row_comparisons_as_in(sql: str) -> str:
    """`(a, b) OPERATOR(s.=) ANY (SELECT ...)` as IN: PostgreSQL prints only the operator of the first pair; the others
    may differ."""
    cursor = Cursor(sql)
    edits: list[tuple[int, int, str]] = []
    for index, token in enumerate(cursor.tokens):
        if token.key != "OPERATOR" or index == 0 or cursor.tokens[index - 1].key != ")":
            continue
        closing = cursor.closing(index + 1)
        opening = _opening(cursor, index - 1)
        is_any = closing + 2 < len(cursor.tokens) and cursor.tokens[closing + 1].key == "ANY"
        if not is_any or cursor.tokens[closing - 1].key != "=" or not cursor.is_query(closing + 3, len(cursor.tokens)):
            continue
        if len(cursor.split(opening + 1, index - 1, ",")) > 1:
            edits.append((token.start, cursor.tokens[closing + 1].end, "IN"))
    return _edited(sql, edits)


def with_operators(sql: str, place: ImplicitComparison, operators: Sequence[str]) -> Iterator[str]:
    """The text with the construct rewritten by these operators (`=`, or `OPERATOR(s.=)`); several candidates if the
    text alone does not show which item a column belongs to. PostgreSQL accepts the right one."""
    cursor = Cursor(sql)
    if place.kind == "USING":
        yield from _join_written(cursor, place, operators)
        return
    start, stop = cursor.tokens[place.start].start, cursor.tokens[place.stop - 1].end
    text = {"IN": _in_written, "DISTINCT": _distinct_written, "NULLIF": _nullif_written, "CASE": _case_written}
    yield sql[:start] + text[place.kind](cursor, place, operators) + sql[stop:]


def _edited(sql: str, edits: Sequence[tuple[int, int, str]]) -> str:
    for start, stop, text in sorted(edits, reverse=True):
        sql = sql[:start] + text + sql[stop:]
    return sql


def _opening(cursor: Cursor, closing: int) -> int:
    depth = 0
    for index in range(closing, -1, -1):
        depth += {")": 1, "(": -1}.get(cursor.tokens[index].key, 0)
        if depth == 0:
            return index
    raise NotDifferentiableError(Reason.of(ReasonCode.UNBALANCED))


def _enclosed_range(cursor: Cursor, index: int) -> Range | None:
    """The content of the innermost parentheses around a token."""
    depth = 0
    for at in range(index - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(cursor.tokens[at].key, 0)
        if depth < 0:
            return at + 1, cursor.closing(at)
    return None


# -- IS DISTINCT FROM, NULLIF, CASE, IN
# --------------------------------------------------------------------------------------------------------------


def _distinct(cursor: Cursor, index: int) -> ImplicitComparison | None:
    keys = [t.key for t in cursor.tokens[index : index + 3]]
    enclosed = _enclosed_range(cursor, index)
    if keys != ["IS", "DISTINCT", "FROM"] or enclosed is None:
        return None
    return ImplicitComparison("DISTINCT", *enclosed, 1)


def _distinct_at(cursor: Cursor, place: ImplicitComparison) -> int:
    depth = 0
    for index in range(place.start, place.stop):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(cursor.tokens[index].key, 0)
        if depth == 0 and cursor.tokens[index].key == "IS" and cursor.tokens[index + 1].key == "DISTINCT":
            return index
    raise NotDifferentiableError(Reason.of(ReasonCode.NO_DISTINCT_FROM))


def _distinct_written(cursor: Cursor, place: ImplicitComparison, operators: Sequence[str]) -> str:
    index = _distinct_at(cursor, place)
    left, right = cursor.text(place.start, index), cursor.text(index + 3, place.stop)
    return (
        f"CASE WHEN ({is_null(left)}) THEN (NOT ({is_null(right)})) WHEN ({is_null(right)}) THEN true "
        f"ELSE (NOT (({left}) {operators[0]} ({right}))) END"
    )


def _nullif(cursor: Cursor, index: int) -> ImplicitComparison | None:
    if cursor.tokens[index + 1].key != "(":
        return None
    return ImplicitComparison("NULLIF", index, cursor.closing(index + 1) + 1, 1)


def _nullif_written(cursor: Cursor, place: ImplicitComparison, operators: Sequence[str]) -> str:
    left, right = (cursor.text(*r) for r in cursor.split(place.start + 2, place.stop - 1, ","))
    return f"CASE WHEN (({left}) {operators[0]} ({right})) THEN NULL ELSE ({left}) END"


def _case(cursor: Cursor, index: int) -> ImplicitComparison | None:
    if cursor.tokens[index + 1].key == "WHEN":
        return None
    stop, branches = _branches(cursor, index)
    return ImplicitComparison("CASE", index, stop, len(branches))


def _branches(cursor: Cursor, start: int) -> tuple[int, list[Range]]:
    """The end of CASE, and the ranges between each of its own WHEN and THEN."""
    depth, begin = 0, 0
    branches: list[Range] = []
    for index in range(start, len(cursor.tokens)):
        key = cursor.tokens[index].key
        if key == "CASE":
            depth += 1
        elif key == "END":
            depth -= 1
            if depth == 0:
                return index + 1, branches
        elif depth == 1 and key == "WHEN":
            begin = index + 1
        elif depth == 1 and key == "THEN":
            branches.append((begin, index))
    raise NotDifferentiableError(Reason.of(ReasonCode.CASE_WITHOUT_END))


def _case_written(cursor: Cursor, place: ImplicitComparison, operators: Sequence[str]) -> str:
    _, branches = _branches(cursor, place.start)
    tested = cursor.text(place.start + 1, branches[0][0] - 1)
    written, begin = "CASE ", branches[0][0] - 1
    for (start, stop), operator in zip(branches, operators, strict=True):
        written += f"{cursor.text(begin, start)} (({tested}) {operator} ({cursor.text(start, stop)})) "
        begin = stop
    return written + cursor.text(begin, place.stop)


def _in(cursor: Cursor, index: int) -> ImplicitComparison | None:
    enclosed = _enclosed_range(cursor, index)
    if enclosed is None or cursor.tokens[index - 1].key != ")" or not cursor.is_query(index + 2, enclosed[1]):
        return None
    opening = _opening(cursor, index - 1)
    width = len(cursor.split(opening + 1, index - 1, ","))
    return ImplicitComparison("IN", *enclosed, width) if opening == enclosed[0] and width > 1 else None


def _in_written(cursor: Cursor, place: ImplicitComparison, operators: Sequence[str]) -> str:
    """True if a row of the subquery is equal, unknown if one may be, else false."""
    closing = cursor.closing(place.start)
    tests = [cursor.text(*r) for r in cursor.split(place.start + 1, closing, ",")]
    query = cursor.text(closing + 3, cursor.closing(closing + 2))
    names = [f"__pgt_c{i}" for i in range(len(tests))]
    same = " AND ".join(f"(({t}) {o} __pgt_q.{n})" for t, o, n in zip(tests, operators, names, strict=True))
    return (
        "SELECT CASE WHEN pg_catalog.bool_or(__pgt_r.t) THEN true WHEN pg_catalog.bool_or(__pgt_r.t IS NULL) "
        f"THEN NULL::boolean ELSE false END FROM (SELECT {same} AS t FROM ({query}) AS __pgt_q"
        f"({', '.join(names)})) AS __pgt_r"
    )


# -- USING
# --------------------------------------------------------------------------------------------------------------


def _using(cursor: Cursor, index: int) -> ImplicitComparison | None:
    # Not USING of ORDER BY, which names its operator.
    if cursor.tokens[index + 1].key != "(":
        return None
    closing = cursor.closing(index + 1)
    return ImplicitComparison("USING", index, closing + 1, len(cursor.split(index + 2, closing, ",")))


@dataclass(frozen=True, slots=True)
class _Item:
    alias: str


@dataclass(frozen=True, slots=True)
class _Joined:
    kind: str
    left: _Item | _Joined
    right: _Item | _Joined
    using: frozenset[str]
    at: int | None  # the token USING


def _join_written(cursor: Cursor, place: ImplicitComparison, operators: Sequence[str]) -> Iterator[str]:
    join = _join_of(cursor, place.start)
    closing = place.stop - 1
    columns = [cursor.name_at(i) for i in range(place.start + 2, closing) if cursor.tokens[i].key != ","]
    sql = cursor.sql
    sides = [list(product(_columns(join.left, c), _columns(join.right, c))) for c in columns]
    start, stop = cursor.tokens[place.start].start, cursor.tokens[closing].end
    if place.stop < len(cursor.tokens) and cursor.tokens[place.stop].key == "AS":
        stop = cursor.tokens[place.stop + 1].end  # its columns are printed as columns of one side
    for chosen in product(*sides):
        pairs = zip(chosen, operators, strict=True)
        on = " AND ".join(f"({left} {operator} {right})" for (left, right), operator in pairs)
        edits = [(start, stop, f"ON ({on})")]
        for column, (left, right) in zip(columns, chosen, strict=True):
            both = (right, left) if join.kind == "RIGHT" else (left, right)
            edits += _merged(cursor, place, column, f"COALESCE({both[0]}, {both[1]})")
        yield _edited(sql, edits)


def _merged(cursor: Cursor, place: ImplicitComparison, column: str, text: str) -> list[tuple[int, int, str]]:
    """An unqualified name refers to the innermost enclosing SELECT that merges a column of this name. If it is an item
    of the select list, it also names the output column."""
    edits = []
    using = [p for p in implicit_comparisons(cursor.sql) if p.kind == "USING"]
    lists = [range(p.start, p.stop) for p in using]
    named = [p for p in using if column in {cursor.name_at(i) for i in range(p.start + 2, p.stop - 1)}]
    scopes = [_select_of(cursor, p.start) for p in named]
    own = _select_of(cursor, place.start)
    for index, token in enumerate(cursor.tokens):
        if not token.is_name or cursor.name_at(index) != column or any(index in r for r in lists):
            continue
        enclosing = [s for s in scopes if s[0] <= index < s[1]]
        if enclosing and max(enclosing) == own and _is_bare_column(cursor, index, column):
            is_alone = _is_output_column(cursor, index)
            edits.append((token.start, token.end, f"{text} AS {quote_ident(column)}" if is_alone else text))
    return edits


def _key_before(cursor: Cursor, index: int) -> str:
    return cursor.tokens[index - 1].key if index else ""


def _key_after(cursor: Cursor, index: int) -> str:
    return cursor.tokens[index + 1].key if index + 1 < len(cursor.tokens) else ""


def _is_bare_column(cursor: Cursor, index: int, column: str) -> bool:
    """Whether a token is an unqualified column name, and not an alias, a type or a function."""
    token = cursor.tokens[index]
    as_written = cursor.sql[token.start : token.end]
    # PostgreSQL prints keywords in upper case, and quotes names if necessary.
    if as_written != (quote_ident(column) if as_written.startswith('"') else column):
        return False
    if _key_before(cursor, index) in (".", "::", "AS", "COLLATE", "OVER", "WINDOW"):
        return False
    if _key_after(cursor, index) in (".", "("):
        return False
    return not _is_list_of_names(cursor, index) and not (cursor.tokens[index - 1].is_name and _is_alias(cursor, index))


def _is_output_column(cursor: Cursor, index: int) -> bool:
    """Whether a name alone is an item of the select list."""
    before = _key_before(cursor, index)
    is_selected = before in ("SELECT", "DISTINCT") or (before == "," and _is_selected(cursor, index))
    return is_selected and _key_after(cursor, index) in (
        *(",", "FROM", "", ")"),
        *("UNION", "INTERSECT", "EXCEPT", "WHERE"),
    )


def _select_of(cursor: Cursor, index: int) -> Range:
    """The SELECT that a token of its FROM belongs to."""
    depth, start = 0, 0
    for at in range(index - 1, -1, -1):
        key = cursor.tokens[at].key
        depth += {")": 1, "(": -1}.get(key, 0)
        if key == "SELECT" and depth <= 0:
            start = at
            break
    depth = 0
    for at in range(start, len(cursor.tokens)):
        key = cursor.tokens[at].key
        depth += {"(": 1, ")": -1}.get(key, 0)
        if depth < 0 or (depth == 0 and key in ("UNION", "INTERSECT", "EXCEPT")):
            return start, at
    return start, len(cursor.tokens)


def _is_alias(cursor: Cursor, index: int) -> bool:
    """A name that follows a name: the alias of a relation."""
    before = cursor.sql[cursor.tokens[index - 1].start : cursor.tokens[index - 1].end]
    return before.startswith('"') or not before.isupper()


def _is_list_of_names(cursor: Cursor, index: int) -> bool:
    """Whether a name is in the column list after the alias of a FROM item or the name of a CTE."""
    enclosed = _enclosed_range(cursor, index)
    if enclosed is None or enclosed[0] < 2 or not cursor.tokens[enclosed[0] - 2].is_name:
        return False
    named = cursor.sql[cursor.tokens[enclosed[0] - 2].start : cursor.tokens[enclosed[0] - 2].end]
    is_word = named.isupper() and not named.startswith('"')
    earlier = cursor.tokens[enclosed[0] - 3].key if enclosed[0] > 2 else ""
    only_names = all(cursor.tokens[i].is_name or cursor.tokens[i].key == "," for i in range(*enclosed))
    return (
        only_names
        and not is_word
        and (earlier in (")", "AS", "WITH", "RECURSIVE", ",") or _is_alias_of(cursor, enclosed[0] - 2))
    )


def _is_alias_of(cursor: Cursor, index: int) -> bool:
    """Whether the name follows another name, as the alias of a table does: not a function name."""
    before = cursor.tokens[index - 1]
    return index > 0 and before.is_name and _is_alias(cursor, index)


def _is_selected(cursor: Cursor, index: int) -> bool:
    depth = 0
    for at in range(index - 1, -1, -1):
        key = cursor.tokens[at].key
        depth += {")": 1, "]": 1, "(": -1, "[": -1}.get(key, 0)
        if depth < 0:
            return False
        if depth == 0 and key == "SELECT":
            return True
        if depth == 0 and key in ("FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "USING", "ON"):
            return False
    return False


def _columns(tree: _Item | _Joined, column: str) -> list[str]:
    """Candidates for the column of this name in a join tree."""
    match tree:
        case _Item():
            return [f"{tree.alias}.{quote_ident(column)}"]
        case _Joined():
            return _columns_of_join(tree, column)
        case _:
            assert_never(tree)


def _columns_of_join(tree: _Joined, column: str) -> list[str]:
    left, right = _columns(tree.left, column), _columns(tree.right, column)
    if column not in tree.using:
        return [*left, *right]
    if tree.kind == "RIGHT":
        left, right = right, left
    # If the types differ, the common type may be that of either side.
    both = [f"COALESCE({a}, {b})" for a, b in product(left, right)]
    return both if tree.kind == "FULL" else [*left, *both]


def _join_of(cursor: Cursor, using: int) -> _Joined:
    """The join of a USING. Each join is in its own parentheses."""
    enclosed = _enclosed_range(cursor, using)
    if enclosed is None:
        raise NotDifferentiableError(Reason.of(ReasonCode.USING_OUTSIDE))
    tree = _tree(cursor.inside(*enclosed))
    while isinstance(tree, _Joined) and tree.at != using:
        tree = tree.left
    if not isinstance(tree, _Joined):
        raise NotDifferentiableError(Reason.of(ReasonCode.USING_WITHOUT_JOIN))
    return tree


def _tree(cursor: Cursor) -> _Item | _Joined:
    left = _item(cursor)
    while cursor.peek() in JOIN_WORDS:
        word = cursor.next().key
        cursor.take("OUTER")
        if word != "JOIN":
            cursor.expect("JOIN")
        right = _item(cursor)
        using: frozenset[str] = frozenset()
        at = None
        if cursor.peek() == "USING":
            at = cursor.at
            cursor.next()
            using = frozenset(cursor.names())
            if cursor.take("AS"):
                cursor.next()
        elif cursor.take("ON"):
            cursor.until(*_AFTER_ITEM)
        left = _Joined(word, left, right, using, at)
    return left


def _item(cursor: Cursor) -> _Item | _Joined:
    cursor.take("LATERAL")
    cursor.take("ONLY")
    if cursor.peek() == "(" and not cursor.is_query(cursor.at + 1, cursor.closing(cursor.at)):
        closing = cursor.closing(cursor.at)
        tree = _tree(cursor.inside(cursor.at + 1, closing))
        cursor.at = closing + 1
        if cursor.peek() in ("", *_AFTER_ITEM):
            return tree
    start = cursor.at
    cursor.until(*_AFTER_ITEM)
    return _Item(cursor.last_name(start, cursor.at))
