"""Regions of a SELECT that is not computed row by row: groups, window partitions, DISTINCT ON, LIMIT.

The output of a region depends only on the rows of FROM in the region, so a changed row affects its region and no other:

    dQ = Q'(affected regions) - Q(affected regions)

    in:  SELECT g, h, rank() OVER (PARTITION BY g, h), sum(x) OVER (PARTITION BY g) FROM t
    out: region key (g), the intersection of all PARTITION BY lists

This module answers two questions from the text: which expressions are the region key, and whether the query is
deterministic, or an ORDER BY with ties lets PostgreSQL choose between rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from pgtrickle.model.reasons import Reason, ReasonCode
from pgtrickle.pipeline.plan.clauses import Clauses, Range, WindowCall
from pgtrickle.pipeline.plan.determined import Rows, columns_in
from pgtrickle.pipeline.plan.grouping import aggregate_at, is_windowed
from pgtrickle.pipeline.plan.nodes import Tree, scans, tree_items
from pgtrickle.pipeline.text.tokens import Cursor, strip_parentheses

LIMIT_TIES = Reason.of(ReasonCode.LIMIT_TIES)
_FLOAT_SUM = Reason.of(ReasonCode.FLOAT_SUM)
_DISTINCT_ON_TIES = Reason.of(ReasonCode.DISTINCT_ON_TIES)
_WINDOW_TIES = Reason.of(ReasonCode.WINDOW_TIES)
# Window functions whose result is the same for all peers (rows that are equal in the window's order).
_PEERS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
# Aggregates whose result does not depend on the order in which rows arrive, and those for which that holds but for
# floats, whose sums do not commute.
_SAME_IN_ANY_ORDER = frozenset(
    """
    count min max bool_and bool_or every bit_and bit_or bit_xor regr_count percentile_cont percentile_disc mode rank
    dense_rank percent_rank cume_dist range_intersect_agg
    """.split()  # noqa: SIM905 - easier to read than quoted words
)
_SAME_BUT_FOR_FLOATS = frozenset(
    {"sum", "avg", "variance", "var_pop", "var_samp", "stddev", "stddev_pop", "stddev_samp"}
)
_FLOAT_WORDS = frozenset(
    {"DOUBLE PRECISION", "REAL", "FLOAT8", "FLOAT4", "SQRT", "CBRT", "EXP", "LN", "LOG", "POWER", "PI"}
)
_FLOATS = frozenset({700, 701})


def is_call(cursor: Cursor, index: int, names: Set[str]) -> bool:
    return aggregate_at(cursor, index, names)


def window_calls(cursor: Cursor, clauses: Clauses) -> list[WindowCall]:
    named: dict[str, Range] = {}
    if clauses.window is not None:
        for start, stop in cursor.split(*clauses.window, ","):
            named[cursor.name_at(start)] = (start + 3, stop - 1)  # name AS ( ... )
    calls = []
    passages = [(a, b) for _, a, b in clauses.items]
    passages += [r for r in (clauses.order, clauses.on) if r is not None]
    for start, stop in passages:
        index = start
        while index < stop:
            if cursor.tokens[index].key == "(" and cursor.is_query(index + 1, cursor.closing(index)):
                index = cursor.closing(index)  # the windows of a subquery are its own
            elif cursor.tokens[index].key == "OVER" and index > start:
                calls.append(_window(cursor, index, named))
            index += 1
    return calls


def _window(cursor: Cursor, over: int, named: dict[str, Range]) -> WindowCall:
    if cursor.tokens[over + 1].key == "(":
        spec = (over + 2, cursor.closing(over + 1))
    else:
        spec = named[cursor.name_at(over + 1)]
    partition: list[Range] = []
    order: list[Range] = []
    start, stop = spec
    if (
        start < stop
        and cursor.tokens[start].is_name
        and cursor.name_at(start) in named
        and cursor.tokens[start].key
        not in (
            "PARTITION BY",
            "ORDER BY",
        )
    ):
        base = named[cursor.name_at(start)]
        inner = cursor.inside(*base)
        if inner.take("PARTITION BY"):
            partition = cursor.split(*inner.until("ORDER BY", *_FRAMES), ",")
        if inner.take("ORDER BY"):
            order = cursor.split(*inner.until(*_FRAMES), ",")
        start += 1
    inner = cursor.inside(start, stop)
    if inner.take("PARTITION BY"):
        partition = cursor.split(*inner.until("ORDER BY", *_FRAMES), ",")
    if inner.take("ORDER BY"):
        order = cursor.split(*inner.until(*_FRAMES), ",")
    by_rows = inner.peek() == "ROWS"
    return WindowCall(_call_start(cursor, over), tuple(partition), tuple(order), by_rows)


_FRAMES = ("ROWS", "RANGE", "GROUPS")


def _call_start(cursor: Cursor, over: int) -> int:
    """The function's name, left of its arguments and of FILTER (...)."""
    index = over - 1
    while index > 0:
        depth = 0
        while index > 0:  # back over one pair of parentheses
            depth += {")": 1, "(": -1}.get(cursor.tokens[index].key, 0)
            if depth == 0:
                break
            index -= 1
        if cursor.tokens[index - 1].key != "FILTER":
            return index - 1
        index -= 2
    return 0


def region_keys(cursor: Cursor, clauses: Clauses, aggregates: Set[str]) -> list[Range]:
    """The region key: expressions over FROM. Empty when all rows are one region.

    GROUP BY: its expressions. Windows and DISTINCT ON: the expressions that all PARTITION BY and ON lists share.
    LIMIT: none.
    """
    if clauses.limit is not None:
        return []
    sets: list[list[Range]] = [list(w.partition) for w in clauses.windows]
    if clauses.on is not None:
        sets.append(cursor.split(*clauses.on, ","))
    if not sets:
        return [strip_parentheses(cursor.tokens, *r) for r in clauses.group]
    common = sets[0]
    for other in sets[1:]:
        known = {_tokens(cursor, r) for r in other}
        common = [r for r in common if _tokens(cursor, r) in known]
    unique = {_tokens(cursor, r): r for r in common}
    return [
        r
        for r in unique.values()
        if not any(aggregate_at(cursor, i, aggregates) or cursor.tokens[i].key == "OVER" for i in range(*r))
    ]


def undetermined(cursor: Cursor, clauses: Clauses, aggregates: Set[str], rows: Rows) -> Reason | None:
    """Why the query is not deterministic; None when it is."""
    order = cursor.split(*clauses.order, ",") if clauses.order is not None else []
    on = cursor.split(*clauses.on, ",") if clauses.on is not None else []
    # With ties the last rows are determined; those that OFFSET skips are not.
    is_cut = clauses.limit is not None and not keeps_ties(cursor, *clauses.limit)
    if is_cut and not _is_total(cursor, order, clauses, aggregates, rows):
        return LIMIT_TIES
    if clauses.on is not None and not _is_total(cursor, [*order, *on], clauses, aggregates, rows):
        return _DISTINCT_ON_TIES
    has_floats = _has_floats(cursor, clauses, rows.trees)
    for window in clauses.windows:
        name = cursor.tokens[window.at].key.lower()
        if name in _PEERS or (not window.by_rows and name in _SAME_IN_ANY_ORDER):
            continue
        if name in _SAME_BUT_FOR_FLOATS and not window.by_rows and not has_floats:
            continue
        if name in _SAME_BUT_FOR_FLOATS and has_floats:
            return _FLOAT_SUM
        if not _is_total(cursor, [*window.partition, *window.order], clauses, aggregates, rows):
            return _WINDOW_TIES
    return _unordered_aggregate(cursor, clauses, aggregates, rows, has_floats=has_floats)


def written_alike(cursor: Cursor, clauses: Clauses, aggregates: Set[str], rows: Rows) -> tuple[str, ...]:
    """Expressions over FROM whose equal values have to have one text, for the query to be deterministic.

    in:  SELECT max(v), array_agg(DISTINCT a), count(DISTINCT b) FROM t
    out: v, a: of 1.0 and 1.00 either may be the maximum
    """
    ranges: list[Range] = []
    order = cursor.split(*clauses.order, ",") if clauses.order is not None else []
    if clauses.limit is not None:
        ranges += _without_keys(cursor, order, clauses, rows)
    if clauses.on is not None:
        ranges += _without_keys(cursor, [*order, *cursor.split(*clauses.on, ",")], clauses, rows)
    starts = {w.at for w in clauses.windows}
    for window in clauses.windows:
        name = cursor.tokens[window.at].key.lower()
        if name in ("min", "max"):
            ranges += cursor.split(window.at + 2, cursor.closing(window.at + 1), ",")
        elif name not in _PEERS | _SAME_IN_ANY_ORDER | _SAME_BUT_FOR_FLOATS:
            ranges += _without_keys(cursor, [*window.partition, *window.order], clauses, rows)
    passages = [(a, b) for _, a, b in clauses.items]
    passages += [r for r in (clauses.having, clauses.order) if r is not None]
    for start, stop in passages:
        for index in range(start, stop):
            if aggregate_at(cursor, index, aggregates) and index not in starts:
                ranges += _shown_values(cursor, index, stop, clauses, rows)
    bare = [cursor.without_direction(r) for r in ranges]
    unique = {_tokens(cursor, r): r for r in bare if not _has_query(cursor, *r)}
    return tuple(cursor.text(*r) for tokens, r in unique.items() if columns_in(tokens))


def _without_keys(cursor: Cursor, order: Iterable[Range], clauses: Clauses, rows: Rows) -> list[Range]:
    """What an order consists of, unless it is unique."""
    passages = list(order)
    return [] if _is_unique(cursor, passages, clauses, rows) else passages


def _shown_values(cursor: Cursor, index: int, stop: int, clauses: Clauses, rows: Rows) -> list[Range]:
    """The arguments of an aggregate call of which it shows one of several equal values, or in the order of these."""
    name = cursor.tokens[index].key.strip('"').lower()
    first, last = index + 2, cursor.closing(index + 1)
    is_distinct = cursor.tokens[first].key == "DISTINCT"
    inner = cursor.inside(first + is_distinct, last)
    arguments = cursor.split(*inner.until("ORDER BY"), ",")
    if name in ("mode", "percentile_disc", "percentile_cont"):
        at = last + 1
        while at < stop and cursor.tokens[at].key != "(":
            at += 1
        within = cursor.inside(at + 1, cursor.closing(at))
        return cursor.split(within.at, within.stop, ",") if within.take("ORDER BY") else []
    if name in ("min", "max") or (is_distinct and name not in ("count", "bool_and", "bool_or", "every")):
        return arguments
    if not inner.take("ORDER BY"):
        return []
    order = cursor.split(inner.at, last, ",")
    return [] if _orders_rows(cursor, order, clauses, rows) else order


def _orders_rows(cursor: Cursor, order: Iterable[Range], clauses: Clauses, rows: Rows) -> bool:
    """Whether an order of the rows of a group is total. Within a group its keys are equal."""
    keys = [r for r in clauses.group if cursor.tokens[r[0]].key not in ("GROUPING SETS", "CUBE", "ROLLUP")]
    columns = [cursor.without_direction(r) for r in order] + keys
    return rows.determined_by([_tokens(cursor, r) for r in columns]).is_all


def _has_query(cursor: Cursor, start: int, stop: int) -> bool:
    return any(cursor.is_query(i + 1, cursor.closing(i)) for i in range(start, stop) if cursor.tokens[i].key == "(")


def depends_on_input_order(cursor: Cursor, clauses: Clauses, aggregates: Set[str]) -> bool:
    """Whether the query shows in which order the rows of FROM come: by LIMIT, array_agg() and the like without an
    order of their own."""
    if clauses.order is None and (clauses.limit is not None or clauses.on is not None):
        return True
    if any(not window.order for window in clauses.windows):
        return True
    reason = _unordered_aggregate(cursor, clauses, aggregates, None, has_floats=False)
    return reason is not None and reason.code is ReasonCode.UNORDERED_AGGREGATE


def keeps_ties(cursor: Cursor, start: int, stop: int) -> bool:
    """Whether LIMIT returns all rows of the last tie (WITH TIES)."""
    return cursor.tokens[stop - 1].key == "TIES" and cursor.tokens[start].key != "OFFSET"


def _has_floats(cursor: Cursor, clauses: Clauses, trees: tuple[Tree, ...]) -> bool:
    """Whether a selected expression may be a float: it has a float column, or a word that makes one."""
    below = [s for tree in trees for p in tree_items(tree) if p.node is not None for s in scans(p.node)]
    exposed = (c for s in below for c in s.relation.columns if c.attnum in {a for a, _ in s.exposes})
    if any(c.typid in _FLOATS for c in exposed):
        return True
    passages = [(a, b) for _, a, b in clauses.items] + ([clauses.having] if clauses.having else [])
    return any(_makes_float(cursor, a, b) for a, b in passages)


def _makes_float(cursor: Cursor, start: int, stop: int) -> bool:
    index = start
    while index < stop:
        key = cursor.tokens[index].key
        if key in ("PERCENTILE_CONT", "PERCENTILE_DISC"):
            index = cursor.closing(index + 1)  # their fraction is a float that nothing is summed with
        elif key in _FLOAT_WORDS:
            return True
        index += 1
    return False


def _unordered_aggregate(
    cursor: Cursor, clauses: Clauses, aggregates: Set[str], rows: Rows | None, *, has_floats: bool
) -> Reason | None:
    """`rows` decides between orders with and without ties, for a caller that asks for these."""
    windowed = {w.at for w in clauses.windows}
    passages = [(a, b) for _, a, b in clauses.items] + ([clauses.having] if clauses.having else [])
    for start, stop in passages:
        for index in range(start, stop):
            if not aggregate_at(cursor, index, aggregates) or index in windowed:
                continue
            reason = _order_matters(cursor, index, has_floats=has_floats)
            if reason is None or (rows is not None and _is_ordered(cursor, index, clauses, rows)):
                continue
            return reason
    return None


def _is_ordered(cursor: Cursor, index: int, clauses: Clauses, rows: Rows) -> bool:
    """Whether ORDER BY of an aggregate call decides between all rows of a group."""
    last = cursor.closing(index + 1)
    inner = cursor.inside(index + 2, last)
    inner.until("ORDER BY")
    return inner.take("ORDER BY") and _orders_rows(cursor, cursor.split(inner.at, last, ","), clauses, rows)


def _order_matters(cursor: Cursor, index: int, *, has_floats: bool) -> Reason | None:
    """Why the result of an aggregate call depends on the order of its rows; None when it does not."""
    name = cursor.tokens[index].key.strip('"').lower()
    if name in _SAME_IN_ANY_ORDER:
        return None
    if name in _SAME_BUT_FOR_FLOATS:
        return _FLOAT_SUM if has_floats else None
    first, last = index + 2, cursor.closing(index + 1)
    if index > 1 and cursor.tokens[index - 2].key == "CARDINALITY" and cursor.tokens[last + 1].key == ")":
        return None  # how many there are does not depend on their order
    if cursor.tokens[first].key == "DISTINCT":
        return None
    inner = cursor.inside(first, last)
    arguments = inner.until("ORDER BY")
    if not inner.take("ORDER BY"):
        return Reason.of(ReasonCode.UNORDERED_AGGREGATE, function=name)
    ordered = {_tokens(cursor, cursor.without_direction(r)) for r in cursor.split(inner.at, last, ",")}
    argument_tokens = [_tokens(cursor, r) for r in cursor.split(*arguments, ",")]
    # A constant, such as the separator of string_agg, orders nothing.
    if any(w not in ordered for w in argument_tokens if columns_in(w)):
        return Reason.of(ReasonCode.AGGREGATE_TIES, function=name)
    return None


def _is_total(cursor: Cursor, order: Iterable[Range], clauses: Clauses, aggregates: Set[str], rows: Rows) -> bool:
    """Whether an order is total: peers are equal in all selected columns, or they are one row."""
    passages = list(order)
    ordered = {_tokens(cursor, cursor.without_direction(r)) for r in passages}
    return _is_unique(cursor, passages, clauses, rows) or _has_all_columns(cursor, ordered, clauses, aggregates)


def _is_unique(cursor: Cursor, order: Iterable[Range], clauses: Clauses, rows: Rows) -> bool:
    """Whether no two rows, or groups, are equal in an order."""
    # A key is unique for rows and for groups by it, but not for the sets of GROUPING SETS.
    if any(cursor.tokens[i].key in ("GROUPING SETS", "CUBE", "ROLLUP") for r in clauses.group for i in range(*r)):
        return False
    determined = rows.determined_by([_tokens(cursor, cursor.without_direction(r)) for r in order])
    if not clauses.group:
        return determined.is_all
    return all(determined.has(_tokens(cursor, r)) for r in (*clauses.group, *clauses.dependent))


def _has_all_columns(cursor: Cursor, ordered: set[tuple[str, ...]], clauses: Clauses, aggregates: Set[str]) -> bool:
    """Whether each selected expression is in the order, or made of columns that are. Windows are checked separately.
    Aggregates of two groups differ, also of equal columns."""
    columns = {c for c in ordered if columns_in(c) == [c]}
    for _, start, stop in clauses.items:
        tokens = _tokens(cursor, (start, stop))
        if tokens in ordered:
            continue
        if _has_query(cursor, start, stop):
            return False
        if any(c not in columns for c in columns_in(tokens)):
            return False
        if any(aggregate_at(cursor, i, aggregates) and not is_windowed(cursor, i, stop) for i in range(start, stop)):
            return False
    return True


def _tokens(cursor: Cursor, passage: Range) -> tuple[str, ...]:
    start, stop = strip_parentheses(cursor.tokens, *passage)
    return tuple(t.key for t in cursor.tokens[start:stop])
