"""The plan: immutable nodes of a query. Scalar expressions stay PostgreSQL's own text.

Scan, Select and UnionAll are linear in every table occurrence, so `differentiate.linear` differentiates any nesting
of them. Aggregate is at the top, below any number of projections and filters over its groups. Everything else is a
Block, Distinct, SetOperation, Recursive or Constant: `differentiate.general` differentiates any nesting of these and of
the linear ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from pgtrickle.model.catalog import Relation
from pgtrickle.model.reasons import Reason


@dataclass(frozen=True, slots=True)
class Scan:
    """One occurrence of a table. `exposes` maps attribute numbers to the names that the query uses for them."""

    occurrence: int
    relation: Relation
    exposes: tuple[tuple[int, str], ...]

    @property
    def key(self) -> tuple[int, ...]:
        """The columns of a unique index without NULLs, if the changes contain them, too."""
        exposed = {attnum for attnum, _ in self.exposes}
        return self.relation.key if exposed.issuperset(self.relation.key) else ()


@dataclass(frozen=True, slots=True)
class Member:
    """An item of FROM: a plan under an alias (as written, quoted where PostgreSQL quotes it)."""

    node: Linear
    alias: str


@dataclass(frozen=True, slots=True)
class From:
    """The FROM clause as text with places for its members: a str is verbatim SQL, an int a member's index."""

    parts: tuple[str | int, ...]
    members: tuple[Member, ...]

    def __post_init__(self) -> None:
        used = [p for p in self.parts if isinstance(p, int)]
        if sorted(used) != list(range(len(self.members))):
            raise ValueError("each member stands in exactly one place of the FROM clause")


@dataclass(frozen=True, slots=True)
class Item:
    """An output column: an expression over the members' aliases, and its name."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Select:
    """Inner joins, a filter and a projection."""

    items: tuple[Item, ...]
    source: From | None
    where: str | None


@dataclass(frozen=True, slots=True)
class UnionAll:
    branches: tuple[Select | UnionAll, ...]

    def __post_init__(self) -> None:
        if len(self.branches) < 2:
            raise ValueError("a union has at least two branches")


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`function(argument) FILTER (WHERE filter)`; argument is None for count(*)."""

    function: str
    argument: str | None
    filter: str | None
    distinct: bool
    sql: str


@dataclass(frozen=True, slots=True)
class Output:
    """An output column over groups: verbatim SQL with places. `key` and `call` places hold indexes."""

    name: str
    parts: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class KeyPlace:
    index: int


@dataclass(frozen=True, slots=True)
class CallPlace:
    index: int


Piece = str | KeyPlace | CallPlace  # of an expression over groups


@dataclass(frozen=True, slots=True)
class Layer:
    """A projection and filter over the rows below, known there as `alias`."""

    items: tuple[Item, ...]
    alias: str
    where: str | None
    tail: str = ""  # ORDER BY and LIMIT


@dataclass(frozen=True, slots=True)
class Input:
    """FROM and WHERE of an Aggregate: as in a Select if they are linear, else as in a Block."""

    source: From | tuple[Tree, ...] | None
    where: Text | None

    def rows(self, items: tuple[Item, ...]) -> Select | Block:
        """The rows of the input, with these expressions as columns."""
        if isinstance(self.source, tuple):
            return Block(tuple(OutputColumn(i.name, (i.sql,)) for i in items), self.source, self.where)
        return Select(items, self.source, plain_sql(self.where) if self.where else None)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """GROUP BY at the top of a query, over any input."""

    input: Input
    keys: tuple[str, ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    having: tuple[Piece, ...] | None
    layers: tuple[Layer, ...] = ()
    tail: tuple[Piece, ...] = ()  # ORDER BY and LIMIT

    @property
    def is_limited(self) -> bool:
        """Whether the visible groups depend on one another."""
        return bool(self.tail) or any(layer.tail for layer in self.layers)


@dataclass(frozen=True, slots=True)
class Values:
    """A VALUES list: rows that depend on no table."""

    sql: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subquery:
    """A subquery in an expression.

    `kind`: exists, in, any, all, array, scalar, or row (a scalar one with several columns). `test`: the left operand of
    IN, if it is plain text.
    """

    node: Node
    kind: str
    test: str | None = None


Text = tuple[str | Subquery, ...]  # SQL text with places for subqueries


@dataclass(frozen=True, slots=True)
class FromItem:
    """An item of a Block's FROM.

    A plan under an alias; or `call`, a function with its alias as written. `is_lateral`: it may name items left of it.
    """

    number: int
    node: Node | None
    alias: str
    call: Text = ()
    is_lateral: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """`kind`: JOIN, LEFT JOIN, RIGHT JOIN, FULL JOIN, CROSS JOIN. `using` is the parenthesised list."""

    kind: str
    left: Tree
    right: Tree
    on: Text | None = None
    using: str | None = None


Tree = FromItem | Join


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """An output column of a Block."""

    name: str
    text: Text


@dataclass(frozen=True, slots=True)
class Block:
    """A SELECT that is not linear in all its inputs.

    `region`: None if each combination of FROM's rows is processed by itself. Otherwise the key expressions (over FROM)
    of regions (groups, partitions of window functions, DISTINCT ON); empty if all rows form one region. `undetermined`:
    why the result is not deterministic (ties in an order), if so; it is not either if equal values of an expression in
    `written_alike` have different texts. `order`: of rows, for an outer query that depends on it.
    """

    columns: tuple[OutputColumn, ...]
    trees: tuple[Tree, ...]
    where: Text | None
    region: tuple[str, ...] | None = None
    tail: Text = ()  # GROUP BY, HAVING, WINDOW, ORDER BY, LIMIT: verbatim, after WHERE
    distinct_on: Text | None = None
    undetermined: Reason | None = None
    limit: Limit | None = None
    grouped: Grouped | None = None
    written_alike: tuple[str, ...] = ()
    order: Text = ()


@dataclass(frozen=True, slots=True)
class Grouped:
    """The output of a Block with GROUP BY, split into parts: a second view of it.

    `columns` are the texts that were split: they identify the block.
    """

    columns: tuple[Text, ...]
    calls: tuple[AggregateCall, ...]
    outputs: tuple[tuple[Piece, ...], ...]
    having: tuple[Piece, ...] | None


@dataclass(frozen=True, slots=True)
class Limit:
    """The clauses of a Block with ORDER BY and LIMIT, split into parts: a second view of it, not a child.

    `rows` are its input rows, with columns c0, c1, ...: output columns, then columns that are only sort keys. `order`:
    pairs of a column's number and its direction as written.
    """

    rows: Node
    order: tuple[tuple[int, str], ...]
    count: int
    offset: int
    has_ties: bool
    clause: str


@dataclass(frozen=True, slots=True)
class Distinct:
    """SELECT DISTINCT over a plan; UNION is one over UNION ALL."""

    node: Node


@dataclass(frozen=True, slots=True)
class Concat:
    """UNION ALL over plans that are not all linear."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SetOperation:
    """INTERSECT or EXCEPT, with or without ALL."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Recursive:
    """WITH RECURSIVE name(names) AS (first UNION [ALL] step) SELECT names AS output_names FROM name.

    `step` names itself in a part that is a call.
    """

    name: str
    names: tuple[str, ...]
    output_names: tuple[str, ...]
    operator: str
    first: Node
    step: Node


Linear = Scan | Select | UnionAll
General = Block | Distinct | Concat | SetOperation | Recursive | Values
Node = Linear | General
Plan = Node | Aggregate


def scans(node: Plan) -> tuple[Scan, ...]:
    """All table occurrences, left to right."""
    if isinstance(node, Scan):
        return (node,)
    return tuple(s for child in children(node) for s in scans(child))


def join_count(node: Plan) -> int:
    """Joins of all FROM clauses, subqueries included: one less than the items of each."""
    below = sum(map(join_count, children(node)))
    match node:
        case Aggregate():
            return join_count(node.input.rows(()))
        case Select():
            return below + (max(len(node.source.members) - 1, 0) if node.source is not None else 0)
        case Block():
            return below + max(len(from_items(node)) - 1, 0)
        case _:
            return below


def children(node: Plan) -> tuple[Node, ...]:
    """The plans directly below."""
    match node:
        case Scan() | Values():
            return ()
        case UnionAll() | Concat():
            return node.branches
        case Aggregate():
            return children(node.input.rows(()))
        case Select():
            return tuple(m.node for m in node.source.members) if node.source is not None else ()
        case Block():
            nodes: list[Node] = []
            for part in from_items(node):
                nodes += [part.node] if part.node is not None else [s.node for s in subqueries(part.call)]
            return (*nodes, *(s.node for text in block_texts(node) for s in subqueries(text)))
        case Distinct():
            return (node.node,)
        case SetOperation():
            return (node.left, node.right)
        case Recursive():
            return (node.first, node.step)
        case _:
            assert_never(node)


def from_items(node: Block) -> tuple[FromItem, ...]:
    """The items of FROM, left to right."""
    return tuple(p for tree in node.trees for p in tree_items(tree))


def tree_items(tree: Tree) -> tuple[FromItem, ...]:
    match tree:
        case FromItem():
            return (tree,)
        case Join():
            return (*tree_items(tree.left), *tree_items(tree.right))
        case _:
            assert_never(tree)


def joins(tree: Tree) -> tuple[Join, ...]:
    match tree:
        case FromItem():
            return ()
        case Join():
            return (*joins(tree.left), *joins(tree.right), tree)
        case _:
            assert_never(tree)


def block_texts(node: Block) -> tuple[Text, ...]:
    """Every text of a block that may contain subqueries, except functions in FROM."""
    conditions = [j.on for tree in node.trees for j in joins(tree) if j.on is not None]
    single = [t for t in (node.where, node.distinct_on) if t is not None]
    return (*(c.text for c in node.columns), *conditions, *single, node.tail, node.order)


def plain_sql(text: Text) -> str:
    """A text that has no subqueries."""
    if subqueries(text):
        raise ValueError("the text holds a subquery")
    return "".join(p for p in text if isinstance(p, str))


def subqueries(text: Text) -> tuple[Subquery, ...]:
    return tuple(p for p in text if isinstance(p, Subquery))


def column_names(node: Node) -> tuple[str, ...]:
    """The names of a plan's output columns."""
    match node:
        case Scan():
            return tuple(name for _, name in node.exposes)
        case UnionAll() | Concat():
            return column_names(node.branches[0])
        case Select():
            return tuple(i.name for i in node.items)
        case Block():
            return tuple(c.name for c in node.columns)
        case Distinct():
            return column_names(node.node)
        case SetOperation():
            return column_names(node.left)
        case Recursive():
            return node.output_names
        case Values():
            return node.names
        case _:
            assert_never(node)


def fill(pieces: Sequence[Piece], key: Callable[[int], str], call: Callable[[int], str]) -> str:
    """The SQL of an expression over groups: `key` and `call` return the SQL of a group key and of an aggregate call."""
    texts = []
    for piece in pieces:
        match piece:
            case str():
                texts.append(piece)
            case KeyPlace():
                texts.append(key(piece.index))
            case CallPlace():
                texts.append(call(piece.index))
            case _:
                assert_never(piece)
    return "".join(texts)
