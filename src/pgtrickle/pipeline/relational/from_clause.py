"""FROM: relations, views, subqueries, VALUES, LATERAL and joins. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from pgtrickle.errors import SparkUnsupportedError
from pgtrickle.pipeline.expressions.coercion import alternatives
from pgtrickle.pipeline.expressions.nodes import Node, Reference
from pgtrickle.pipeline.expressions.resolve import construct, decided, operator, resolve_open
from pgtrickle.pipeline.expressions.syntax import identifier
from pgtrickle.pipeline.expressions.types import INT8, PgType
from pgtrickle.pipeline.relational import functions
from pgtrickle.pipeline.relational.algebra import Inline, OneRow, Project, Relation, Scan, columns
from pgtrickle.pipeline.relational.computed import ComputedColumn
from pgtrickle.pipeline.relational.conditions import Conditions
from pgtrickle.pipeline.relational.scalars import Scalars
from pgtrickle.pipeline.relational.scopes import CommonTable, Context, Item, Rows, Scope
from pgtrickle.pipeline.relational.unnesting import dependent_join

_KINDS = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class FromClause:
    """Adds items to `scope`, left to right: LATERAL items see the items before them."""

    def __init__(self, context: Context, scope: Scope) -> None:
        self.context = context
        self.scope = scope

    def read(self, tree: exp.Select) -> Relation:
        source = tree.args.get("from_")
        if source is None:
            return OneRow()
        relation = self._item(source.this)
        for join in tree.args.get("joins") or ():
            relation = self._joined(relation, join, len(self.scope.items))
        if tree.args.get("laterals"):
            raise SparkUnsupportedError("LATERAL VIEW")
        return relation

    def _item(self, tree: exp.Expr) -> Relation:
        relation = self._single(tree)
        for join in tree.args.get("joins") or ():
            relation = self._joined(relation, join, len(self.scope.items))
        return relation

    def _single(self, tree: exp.Expr) -> Relation:
        match tree:
            case exp.Table() if isinstance(tree.this, exp.Identifier):
                _no_extras(tree, {"this", "db", "alias", "joins"})
                return self._table(tree)
            case exp.Table() if isinstance(tree.this, exp.Values):
                return self._derived(self._values(tree.this), tree.args.get("alias"))
            case exp.Table() if tree.this is None:
                raise SparkUnsupportedError("ROWS FROM")
            case exp.Table():
                return self._function(tree.this, tree)
            case exp.Values():
                return self._derived(self._values(tree), tree.args.get("alias"))
            case exp.Subquery() if isinstance(tree.this, exp.Table | exp.Subquery) and not tree.args.get("alias"):
                return self._item(tree.this)
            case exp.Subquery():
                _no_extras(tree, {"this", "alias", "joins"})
                rows = self.context.query(self.context, tree.this, self._outside())
                return self._derived(rows, tree.args.get("alias"))
            case exp.Lateral() if isinstance(tree.this, exp.Subquery):
                rows = self.context.query(self.context, tree.this.this, self.scope)
                return self._derived(rows, tree.args.get("alias"))
            case exp.Lateral() if isinstance(tree.this, exp.Table):
                return self._single(tree.this)
            case exp.Lateral():
                return self._function(tree.this, tree)
        return self._function(tree, tree)

    def _outside(self) -> Scope:
        """The scope of a subquery that is not LATERAL: common table expressions and outer queries."""
        return Scope(self.scope.parent, tables=self.scope.tables)

    def _table(self, tree: exp.Table) -> Relation:
        name, schema = identifier(tree.this), identifier(tree.args.get("db"))
        alias = tree.args.get("alias")
        common = self.scope.common_table(name) if not schema else None
        if common is not None:
            return self._derived(self._common_table(name, common), alias, name)
        entry = self.context.catalog(schema, name)
        if isinstance(entry, str):
            return self._derived(self.context.view(self.context, entry), alias, name)
        scanned = [(c.name, self.context.names.column(c.type, native=c.native)) for c in entry if c.type is not None]
        requested = self._computed_columns((schema, name))
        computed = {e: self.context.names.column(_typed(c), native=c.stored.is_decimal) for e, c in requested.items()}
        added = [(c.name, computed[e]) for e, c in requested.items()]
        scan = Scan(schema, name, (*scanned, *added))
        typed: dict[str, Reference] = dict(scanned)
        # A column that Spark cannot represent keeps its position for column aliases, and cannot be referenced.
        shown = [(c.name, typed.get(c.name)) for c in entry]
        names = _alias_names(alias)
        called = [(names[i] if i < len(names) else column, reference) for i, (column, reference) in enumerate(shown)]
        visible = [(column, reference) for column, reference in called if reference is not None]
        others = [(n, c.label or "?") for (n, r), c in zip(called, entry, strict=True) if r is None]
        alias_name = identifier(alias.this) if alias is not None else name
        originals = {n: c.name for (n, _), c in zip(called, entry, strict=True)}
        item = Item(alias_name, tuple(visible), tuple(others), (schema, name), originals, computed)
        self.scope.items.append(item)
        return scan

    def _computed_columns(self, source: tuple[str, str]) -> Mapping[str, ComputedColumn]:
        return self.context.computed.of(source) if self.context.computed is not None else {}

    def _common_table(self, name: str, common: CommonTable) -> Rows:
        if common.working is not None:
            copy, new_columns = self.context.names.copy(common.working.relation)
            return Rows(copy, tuple((n, new_columns[c.name]) for n, c in common.working.columns))
        if common.is_recursive:
            return self.context.recursion(self.context, name, common)
        return _renamed(self.context.query(self.context, common.query, common.scope), common.names)

    def _derived(self, rows: Rows, alias: exp.Expr | None, name: str = "") -> Relation:
        rows = _renamed(rows, _alias_names(alias))
        called = identifier(alias.this) if alias is not None and alias.this is not None else name
        self.scope.items.append(Item(called, rows.columns, inputs=rows.inputs))
        if isinstance(rows.relation, Project) and rows.passed_on:
            return replace(rows.relation, outputs=(*rows.relation.outputs, *rows.passed_on))
        return rows.relation

    def _function(self, tree: exp.Expr, item: exp.Expr) -> Relation:
        """A set-returning function, which sees the items before it like LATERAL."""
        names = self.context.names
        made, shown = functions.generated(tree, Scalars(self.context, self.scope, OneRow()), names)
        alias = item.args.get("alias") or tree.args.get("alias")
        called = identifier(alias.this) if alias is not None and alias.this is not None else shown
        offset = tree.args.get("offset") or item.args.get("offset")
        columns_: list[tuple[str, Node]] = [(called, made.column)]
        if item.args.get("ordinality") or tree.args.get("ordinality") or offset:
            ordinal = names.column(INT8)
            made = replace(made, ordinal=ordinal)
            columns_.append((identifier(offset) if isinstance(offset, exp.Identifier) else "ordinality", ordinal))
        aliases = _alias_names(alias)
        columns_ = [(aliases[i] if i < len(aliases) else name, node) for i, (name, node) in enumerate(columns_)]
        self.scope.items.append(Item(called, tuple(columns_)))
        return made

    def _values(self, tree: exp.Values) -> Rows:
        return values(self.context, tree)

    def _joined(self, left: Relation, join: exp.Join, split: int) -> Relation:
        if join.args.get("method"):
            raise SparkUnsupportedError(f"{join.args['method']} JOIN")
        side, kind = str(join.args.get("side") or "").upper(), str(join.args.get("kind") or "").upper()
        if side not in _KINDS or kind not in ("", "INNER", "OUTER", "CROSS"):
            raise SparkUnsupportedError(f"{side} {kind} JOIN".strip())
        start = self._first_of(left, split)
        right = self._item(join.this)
        using = join.args.get("using")
        if using:
            return self._using(_KINDS[side], left, right, [identifier(u) for u in using], (start, split))
        on = join.args.get("on")
        conditions = Conditions(self.context, self.scope)
        if on is None:
            return dependent_join(self.context.names, _KINDS[side], left, right, None)
        return conditions.join(_KINDS[side], left, right, on)

    def _first_of(self, left: Relation, split: int) -> int:
        """The index of the first item of the left side in the scope."""
        own = {c.name for c in columns(left)}
        for number in range(split):
            names = [n.name for _, n in self.scope.items[number].columns if isinstance(n, Reference)]
            if names and names[0] in own:
                return number
        return split

    def _using(
        self, kind: str, left: Relation, right: Relation, names: Sequence[str], split: tuple[int, int]
    ) -> Relation:
        sides = (self.scope.items[split[0] : split[1]], self.scope.items[split[1] :])
        condition: Node | None = None
        for name in names:
            one, other = (self._named(items, name) for items in sides)
            test = operator("=", one, other)
            condition = test if condition is None else construct("AND", condition, test)
            # PostgreSQL prints the unqualified name of a merged column only if it is not the column of one side.
            merged = {"inner": one, "left": one, "right": other}.get(kind)
            self.scope.merged[name] = merged if merged is not None else construct("COALESCE", one, other)
        return dependent_join(self.context.names, kind, left, right, condition)

    def _named(self, items: Sequence[Item], name: str) -> Node:
        matches = [node for item in items for column, node in item.columns if column == name]
        if len(matches) == 1:
            return matches[0]
        if name in self.scope.merged:
            return self.scope.merged[name]
        raise SparkUnsupportedError("USING", f"column {name} is not found in one item")


def values(context: Context, tree: exp.Values) -> Rows:
    """VALUES: rows of constants, each column in its common type."""

    def no_column(subtree: exp.Expr, _inner: object) -> Node | None:
        if isinstance(subtree, exp.Column | exp.Subquery):
            raise SparkUnsupportedError("VALUES with anything but constants")
        return None

    rows = [[resolve_open(e, no_column) for e in row.expressions] for row in tree.expressions]
    made = [alternatives(list(column), "VALUES") for column in zip(*rows, strict=True)]
    made = [[decided(n) for n in column] for column in made]
    inline = Inline(
        tuple(context.names.column(_common(column).type) for column in made),
        tuple(zip(*made, strict=True)),
    )
    return Rows(inline, tuple((f"column{i + 1}", c) for i, c in enumerate(inline.columns)))


def _common(column: Sequence[Node]) -> Node:
    """The common type of a column; for numerics one that is wide enough for all values."""
    return construct("COALESCE", *column) if column[0].type.name == "numeric" and len(column) > 1 else column[0]


def _typed(column: ComputedColumn) -> PgType:
    assert column.stored.type is not None
    return column.stored.type


def _alias_names(alias: exp.Expr | None) -> list[str]:
    return [identifier(c) for c in alias.args.get("columns") or ()] if alias is not None else []


def _renamed(rows: Rows, names: Sequence[str]) -> Rows:
    if not names:
        return rows
    columns_ = tuple((names[i] if i < len(names) else name, column) for i, (name, column) in enumerate(rows.columns))
    return Rows(rows.relation, columns_)


def _no_extras(tree: exp.Expr, known: set[str]) -> None:
    for name, value in tree.args.items():
        if name not in known and value:
            raise SparkUnsupportedError(f"{name} in FROM", tree.sql("postgres")[:80])
