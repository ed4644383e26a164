"""A whole query: WITH, SELECT, VALUES and set operations. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from pgtrickle.errors import DefinitionError, SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import alternatives, coerce
from pgtrickle.pipeline.expressions.nodes import Node, Reference, references
from pgtrickle.pipeline.expressions.resolve import construct
from pgtrickle.pipeline.expressions.syntax import identifier, integer, parse
from pgtrickle.pipeline.relational.algebra import (
    Aggregate,
    AtMostOne,
    Distinct,
    Filter,
    Generate,
    Join,
    Output,
    Project,
    Recursive,
    Relation,
    Scan,
    SetOperation,
    Top,
    UnionAll,
    Window,
    Working,
    children,
    columns,
    expressions,
)
from pgtrickle.pipeline.relational.computed import ComputedColumns, Source
from pgtrickle.pipeline.relational.from_clause import values
from pgtrickle.pipeline.relational.inputs import Catalog
from pgtrickle.pipeline.relational.keys import check_keys
from pgtrickle.pipeline.relational.naming import Names
from pgtrickle.pipeline.relational.ordering import sort_keys
from pgtrickle.pipeline.relational.scopes import CommonTable, Context, Rows, Scope
from pgtrickle.pipeline.relational.select import compile_select, limit_of, limited
from pgtrickle.pipeline.relational.source_text import remember

# They read columns of their children by name only; others depend on all columns.
_BY_NAME = (Aggregate, AtMostOne, Filter, Generate, Join, Project, Top, Window)
_WORDS: dict[type[exp.Expr], str] = {exp.Union: "UNION", exp.Intersect: "INTERSECT", exp.Except: "EXCEPT"}


def compile_text(sql: str, catalog: Catalog, computed: ComputedColumns | None = None) -> tuple[Rows, Names]:
    """Raises SparkUnsupportedError with the name of the first construct that is not supported."""
    while computed is not None:
        count = len(computed)
        try:
            rows, names = _compiled(sql, catalog, computed)
        except SparkUnsupportedError:
            if len(computed) == count:
                raise
            continue
        if len(computed) == count and not computed.drop(_read_columns(rows)):
            return rows, names
    return _compiled(sql, catalog, None)


def _read_columns(rows: Rows) -> frozenset[tuple[Source, str]]:
    """The relations, with the names of the columns that the result depends on."""
    read = {c.name for _, c in rows.columns}
    outputs: dict[str, Node] = {}
    scanned: list[tuple[Source, str, str]] = []  # relation, its column, the name of this in the query
    waiting: list[Relation] = [rows.relation]
    while waiting:
        relation = waiting.pop()
        if isinstance(relation, Scan):
            scanned += [((relation.schema, relation.name), name, c.name) for name, c in relation.columns]
        if isinstance(relation, Project):  # an output that nothing reads has no effect
            outputs |= {o.column.name: o.node for o in relation.outputs}
        else:
            read |= frozenset[str]().union(*(references(node) for node in expressions(relation)))
        if not isinstance(relation, _BY_NAME):
            read |= {c.name for child in children(relation) for c in columns(child)}
        waiting += children(relation)
    todo = list(read)
    while todo:
        node = outputs.pop(todo.pop(), None)
        found = references(node) - read if node is not None else frozenset[str]()
        read |= found
        todo += found
    return frozenset((source, name) for source, name, called in scanned if called in read)


def _compiled(sql: str, catalog: Catalog, computed: ComputedColumns | None) -> tuple[Rows, Names]:
    context = Context(names := Names(), catalog, _query, _view, _recursion, computed)
    try:
        rows = _view(context, sql)
        check_keys(rows.relation)
        return rows, names
    except SparkUnsupportedError:
        raise
    except DefinitionError as error:
        raise SparkUnsupportedError("an expression", error.message) from error


def _view(context: Context, sql: str) -> Rows:
    text = sql.strip().removesuffix(";")
    return _query(context, remember(parse(text), text), None)


def _query(context: Context, tree: exp.Expr, parent: Scope | None) -> Rows:
    while isinstance(tree, exp.Subquery | exp.Paren) and not _has_tail(tree):
        tree = tree.this
    scope = Scope(parent)
    _read_with(tree, scope)
    match tree:
        case exp.Select():
            return compile_select(context, tree, scope)
        case exp.Values():
            return values(context, tree)
        case exp.SetOperation():
            return _ordered(tree, _set_operation(context, tree, scope))
        case exp.Subquery():
            return _ordered(tree, _query(context, tree.this, scope))
    raise SparkUnsupportedError("a statement that is not a query", tree.key.upper())


def _has_tail(tree: exp.Expr) -> bool:
    return any(tree.args.get(name) for name in ("with_", "order", "limit", "offset"))


def _read_with(tree: exp.Expr, scope: Scope) -> None:
    with_ = tree.args.get("with_")
    if with_ is None:
        return
    for cte in with_.expressions:
        name = identifier(cte.args["alias"].this)
        names = tuple(identifier(c) for c in cte.args["alias"].args.get("columns") or ())
        is_recursive = bool(with_.args.get("recursive")) and _names_itself(cte.this, name)
        if not isinstance(cte.this, exp.Query):
            raise SparkUnsupportedError("a statement in WITH that changes data")
        # Its scope: the common table expressions before it, and outer queries.
        before = Scope(scope.parent, tables=dict(scope.tables))
        scope.tables[name] = CommonTable(cte.this, names, before, is_recursive)


def _names_itself(tree: exp.Expr, name: str) -> bool:
    return any(not t.args.get("db") and identifier(t.this) == name for t in tree.find_all(exp.Table))


def _recursion(context: Context, name: str, common: CommonTable) -> Rows:
    """first UNION [ALL] step: the step is compiled over the working table."""
    tree = common.query
    while isinstance(tree, exp.Subquery | exp.Paren) and not _has_tail(tree):
        tree = tree.this
    if not isinstance(tree, exp.Union) or _has_tail(tree):
        raise SparkUnsupportedError("WITH RECURSIVE", "it is not UNION of a first part and a step")
    if _names_itself(tree.this, name):
        raise SparkUnsupportedError("WITH RECURSIVE", "its first part names itself")
    first = _query(context, tree.this, common.scope)
    named = [common.names[i] if i < len(common.names) else n for i, (n, _) in enumerate(first.columns)]
    types = [c.type for _, c in first.columns]
    working = Working(tuple(context.names.column(t, native=False) for t in types))
    inside = Scope(common.scope)
    shown = tuple(zip(named, working.columns, strict=True))
    inside.tables[name] = CommonTable(tree, (), None, working=Rows(working, shown))
    step = _query(context, tree.expression, inside)
    # PostgreSQL casts the columns of the step to the types of the first part.
    parts: list[list[Node]] = [
        [c for _, c in first.columns],
        [coerce(c, t) for (_, c), t in zip(step.columns, types, strict=True)],
    ]
    made = tuple(context.names.column(t, native=False) for t in types)
    is_distinct = tree.args.get("distinct") is not False
    sides = [
        Project(side.relation, tuple(Output(context.names.column(t), n) for t, n in zip(types, nodes, strict=True)))
        for side, nodes in zip((first, step), parts, strict=True)
    ]
    relation = Recursive(sides[0], sides[1], working, is_distinct, made)
    return Rows(relation, tuple(zip(named, made, strict=True)))


def _set_operation(context: Context, tree: exp.SetOperation, scope: Scope) -> Rows:
    if any(tree.args.get(name) for name in ("by_name", "side", "kind", "on")):
        raise SparkUnsupportedError("a set operation by name")
    sides = [_query(context, side, scope) for side in (tree.this, tree.expression)]
    left, right = _in_one_type(context.names, sides)
    word = _WORDS[type(tree)]
    is_distinct = tree.args.get("distinct") is not False
    shown = tuple(context.names.column(c.type, native=c.native) for c in (o.column for o in left.outputs))
    relation: Relation
    if word == "UNION":
        relation = UnionAll((left, right), shown)
        if is_distinct:
            relation = Distinct(relation)
    else:
        relation = SetOperation(word, not is_distinct, left, right, shown)
    names = [name for name, _ in sides[0].columns]
    return Rows(relation, tuple(zip(names, shown, strict=True)))


def _in_one_type(names: Names, sides: Sequence[Rows]) -> tuple[Project, Project]:
    """Both sides, cast to the common types and in the same form."""
    if len({len(side.columns) for side in sides}) != 1:
        raise SparkUnsupportedError("a set operation", "its sides have different numbers of columns")
    outputs: tuple[list[Output], list[Output]] = ([], [])
    for pair in zip(*(side.columns for side in sides), strict=True):
        nodes = alternatives([column for _, column in pair], "UNION")
        type_ = construct("COALESCE", *nodes).type if nodes[0].type.name == "numeric" else nodes[0].type
        native = all(_is_native(n) for n in nodes)
        for made, node in zip(outputs, nodes, strict=True):
            made.append(Output(names.column(type_, native=native), node))
    return Project(sides[0].relation, tuple(outputs[0])), Project(sides[1].relation, tuple(outputs[1]))


def _is_native(node: Node) -> bool:
    return node.native if isinstance(node, Reference) else True


def _ordered(tree: exp.Expr, rows: Rows) -> Rows:
    limit = limit_of(tree)
    if limit is None:
        return rows
    by_name = dict(rows.columns)

    def column(sort_tree: exp.Expr) -> Node:
        place = integer(sort_tree) if isinstance(sort_tree, exp.Literal) else None
        if place is not None:
            return rows.columns[place - 1][1]
        name = identifier(sort_tree.this) if isinstance(sort_tree, exp.Column) else ""
        if name not in by_name:
            raise SparkUnsupportedError("ORDER BY of a set operation", sort_tree.sql("postgres")[:80])
        return by_name[name]

    order = sort_keys(tree.args["order"].expressions if tree.args.get("order") else (), column)
    return Rows(limited(rows.relation, order, limit), rows.columns)
