"""Relational algebra with typed expressions: what a query is compiled to, and what a DataFrame is built from. Pure.

Every column has a name that is unique in a compiled query, so that a reference needs no table. A reference to a column
that the tree below does not produce refers to an outer query.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pgtrickle.pipeline.expressions.nodes import Node, Reference, references
from pgtrickle.pipeline.expressions.types import PgType


@dataclass(frozen=True, slots=True)
class Output:
    """A column and its expression. A numeric that is only passed on keeps its form, a computed one is native."""

    column: Reference
    node: Node


@dataclass(frozen=True, slots=True)
class SortKey:
    node: Node
    is_descending: bool
    has_nulls_first: bool


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`order` is that of an ordered aggregate, or of WITHIN GROUP. `where` is the FILTER condition.

    `parameters`: constant arguments (a delimiter, a fraction).
    """

    name: str
    arguments: tuple[Node, ...]
    type: PgType
    is_distinct: bool = False
    where: Node | None = None
    order: tuple[SortKey, ...] = ()
    parameters: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """Bounds: None is UNBOUNDED, 0 is CURRENT ROW, negative is PRECEDING."""

    unit: str  # ROWS, RANGE, GROUPS
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`call` over the rows of a partition: an aggregate or a window function."""

    call: AggregateCall
    partition: tuple[Node, ...]
    order: tuple[SortKey, ...]
    frame: Frame | None = None  # None: the function has no frame, or the default one
    exclude: str = ""  # CURRENT ROW, GROUP, TIES
    marks: tuple[Reference, ...] = ()  # with exclude: number of the row, and of its peers


@dataclass(frozen=True, slots=True, eq=False)
class OneRow:
    """One row without columns: a SELECT without FROM."""


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    schema: str
    name: str
    columns: tuple[tuple[str, Reference], ...]  # name in the relation, column
    state: str = ""  # in a delta: old, new, changes


@dataclass(frozen=True, slots=True, eq=False)
class Inline:
    """VALUES: constant rows."""

    columns: tuple[Reference, ...]
    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Generate:
    """The child's rows, each joined with the values of a set-returning function. `ordinal`: WITH ORDINALITY.

    `keeps`: a left join; a row without values is returned once, with NULL.
    """

    child: Relation
    function: str  # generate_series, unnest, members (elements of ARRAY[...]), jsonb_array_elements[_text]
    arguments: tuple[Node, ...]
    column: Reference
    ordinal: Reference | None = None
    keeps: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Project:
    child: Relation
    outputs: tuple[Output, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    child: Relation
    condition: Node


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """`kind`: inner, left, right, full, semi, anti. `same`: pairs that must not be distinct, besides the condition."""

    kind: str
    left: Relation
    right: Relation
    condition: Node | None = None
    same: tuple[tuple[Node, Node], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Aggregate:
    """One row per group; without keys exactly one row."""

    child: Relation
    keys: tuple[Output, ...]
    calls: tuple[tuple[Reference, AggregateCall], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    child: Relation
    calls: tuple[tuple[Reference, WindowCall], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Distinct:
    """One row of each set of equal rows."""

    child: Relation


@dataclass(frozen=True, slots=True, eq=False)
class Top:
    """The first `count` rows of each partition after `offset`; all of them if `count` is None."""

    child: Relation
    order: tuple[SortKey, ...]
    count: int | None
    offset: int = 0
    has_ties: bool = False
    partition: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class AtMostOne:
    """The child's rows; fails if a partition has more than one row, as a scalar subquery does."""

    child: Relation
    partition: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Working:
    """The working table of a recursive query: the rows of the previous step."""

    columns: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Recursive:
    """WITH RECURSIVE: `first`, then `step` over the working table until it returns no new rows."""

    first: Relation
    step: Relation
    working: Working
    is_distinct: bool
    columns: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, eq=False)
class UnionAll:
    """The branches' columns match by position and already have the same types and forms."""

    branches: tuple[Relation, ...]
    columns: tuple[Reference, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SetOperation:
    """INTERSECT or EXCEPT; columns match by position and already have the same types and forms."""

    word: str
    keeps_duplicates: bool
    left: Relation
    right: Relation
    columns: tuple[Reference, ...]


Relation = (
    OneRow
    | Scan
    | Inline
    | Generate
    | Project
    | Filter
    | Join
    | Aggregate
    | Window
    | Distinct
    | Top
    | AtMostOne
    | Working
    | Recursive
    | UnionAll
    | SetOperation
)


def columns(relation: Relation) -> tuple[Reference, ...]:
    """The output columns."""
    match relation:
        case OneRow():
            return ()
        case Scan():
            return tuple(column for _, column in relation.columns)
        case Inline() | Working() | Recursive() | UnionAll() | SetOperation():
            return relation.columns
        case Generate():
            ordinal = () if relation.ordinal is None else (relation.ordinal,)
            return (*columns(relation.child), relation.column, *ordinal)
        case Project():
            return tuple(o.column for o in relation.outputs)
        case Join():
            left = columns(relation.left)
            return left if relation.kind in ("semi", "anti") else (*left, *columns(relation.right))
        case Aggregate():
            return (*(k.column for k in relation.keys), *(column for column, _ in relation.calls))
        case Window():
            return (*columns(relation.child), *(column for column, _ in relation.calls))
        case Filter() | Distinct() | Top() | AtMostOne():
            return columns(relation.child)


def children(relation: Relation) -> tuple[Relation, ...]:
    match relation:
        case OneRow() | Scan() | Inline() | Working():
            return ()
        case Recursive():
            return (relation.first, relation.step)
        case Join() | SetOperation():
            return (relation.left, relation.right)
        case UnionAll():
            return relation.branches
        case _:
            return (relation.child,)


def most_rows(relation: Relation) -> int | None:
    """An upper bound of the number of rows that follows from the operators; None if there is none."""
    match relation:
        case OneRow():
            return 1
        case Inline():
            return len(relation.rows)
        case Aggregate() if not relation.keys:
            return 1
        case Top() if relation.count is not None and not relation.partition and not relation.has_ties:
            return relation.count
        case Project() | Filter() | Aggregate() | Window() | Distinct() | Top() | AtMostOne():
            return most_rows(relation.child)
        case _:
            return None


def _of_call(call: AggregateCall) -> Iterator[Node]:
    yield from call.arguments
    yield from (key.node for key in call.order)
    if call.where is not None:
        yield call.where


def expressions(relation: Relation) -> Iterator[Node]:
    """The expressions of this operator, not of its children."""
    match relation:
        case Inline():
            yield from (node for row in relation.rows for node in row)
        case Generate():
            yield from relation.arguments
        case Project():
            yield from (o.node for o in relation.outputs)
        case Filter():
            yield relation.condition
        case Join():
            if relation.condition is not None:
                yield relation.condition
            yield from (column for pair in relation.same for column in pair)
        case Aggregate():
            yield from (k.node for k in relation.keys)
            yield from (node for _, call in relation.calls for node in _of_call(call))
        case Window():
            for _, window in relation.calls:
                yield from _of_call(window.call)
                yield from window.partition
                yield from (key.node for key in window.order)
                yield from window.marks
        case Top():
            yield from relation.partition
            yield from (key.node for key in relation.order)
        case AtMostOne():
            yield from relation.partition
        case _:
            return


@lru_cache(maxsize=4096)
def _names(relation: Relation) -> tuple[frozenset[str], frozenset[str]]:
    """Names that the tree produces, and names that it reads."""
    made = frozenset(c.name for c in columns(relation))
    read = frozenset[str]().union(*(references(node) for node in expressions(relation)))
    for child in children(relation):
        inner = _names(child)
        made, read = made | inner[0], read | inner[1]
    return made, read


def free(relation: Relation) -> frozenset[str]:
    """Names of columns of outer queries that it reads."""
    made, read = _names(relation)
    return read - made


def reads(relation: Relation) -> frozenset[str]:
    """Names of all columns that any expression in the tree reads."""
    return _names(relation)[1]
