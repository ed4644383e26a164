"""FROM: its items and joins as trees. Join conditions and function calls stay text."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.plan.names import outer_aliases
from pgtrickle.pipeline.plan.nodes import Aggregate, Block, FromItem, Join, Node, OutputColumn, Plan, Text, Tree
from pgtrickle.pipeline.plan.shapes import output_names, simplify, with_column_names
from pgtrickle.pipeline.plan.using import join_columns
from pgtrickle.pipeline.text.tokens import CLAUSE_ENDS, JOIN_WORDS, Cursor, identifier

if TYPE_CHECKING:
    from pgtrickle.pipeline.parse.reader import Ctes, Reader

_AFTER_ITEM = (",", "ON", "USING", *JOIN_WORDS, *CLAUSE_ENDS)


class FromReader:
    """Reads the FROM clause that the cursor spans.

    `top`: its only item may be folded; then `folded` contains it with its alias, and the trees are not used.
    `keeps_order`: the query depends on the order of the rows of an item.
    """

    def __init__(self, reader: Reader, cursor: Cursor, ctes: Ctes, *, top: bool, keeps_order: bool = False) -> None:
        self.reader = reader
        self.cursor = cursor
        self.ctes = ctes
        self.top = top
        self.keeps_order = keeps_order
        self.folded: tuple[Aggregate, str] | None = None

    def trees(self) -> tuple[Tree, ...]:
        joined = [self._joined()]
        while self.cursor.take(","):
            joined.append(self._joined())
        if self.cursor.at != self.cursor.stop:
            raise NotDifferentiableError(Reason.of(ReasonCode.FROM_UNEXPECTED, found=str(self.cursor.peek())))
        return tuple(joined)

    def _joined(self) -> Tree:
        cursor = self.cursor
        left = self._item()
        while cursor.peek() in JOIN_WORDS:
            word = cursor.next().key
            cursor.take("OUTER")
            if word != "JOIN":
                cursor.expect("JOIN")
            kind = "JOIN" if word in ("JOIN", "INNER") else f"{word} JOIN"
            right = self._item()
            on: Text | None = None
            using = None
            if cursor.take("ON"):
                on = self.reader.text(cursor, self.ctes, *cursor.until(",", *JOIN_WORDS, *CLAUSE_ENDS))
            elif cursor.take("USING"):
                closing = cursor.closing(cursor.at)
                using = cursor.text(cursor.at, closing + 1)
                cursor.at = closing + 1
                if cursor.take("AS"):
                    self._refuse_named_columns(cursor.next().key)
            left = Join(kind, left, right, on, using)
        return left

    def _refuse_named_columns(self, alias: str) -> None:
        """Refuses references to an alias for USING, as in `a JOIN b USING (k) AS alias`. PostgreSQL prints its columns
        as columns of the tables where it can, and a whole row of it as a ROW(...) without column names."""
        keys = [token.key for token in self.cursor.tokens]
        if "ROW" in keys or any(key == alias and after == "." for key, after in pairwise(keys)):
            raise NotDifferentiableError(Reason.of(ReasonCode.USING_ALIAS))

    def _item(self) -> Tree:
        cursor = self.cursor
        is_lateral = cursor.take("LATERAL")
        only = cursor.take("ONLY")
        if cursor.peek() == "(":
            closing = cursor.closing(cursor.at)
            if cursor.is_query(cursor.at + 1, closing):
                inner = cursor.inside(cursor.at + 1, closing)
                cursor.at = closing + 1
                is_top = self.top and not is_lateral
                plan = self.reader.query(inner, self.ctes, top=is_top, open_=is_lateral, keeps_order=self.keeps_order)
                return self._part(plan, None, None, is_lateral=is_lateral)
            cursor.next()
            self.top = False  # there is a join above its items
            tree = self._joined()
            cursor.expect(")")
            return self._aliased(tree) if cursor.peek() == "AS" or self._alias_follows() else tree
        return self._named(only, is_lateral=is_lateral)

    def _aliased(self, tree: Tree) -> FromItem:
        """A join with an alias of its own, which hides those of its items: a subquery that selects all columns."""
        alias, listed = self._alias(None)
        columns = join_columns(tree)
        if columns is None:
            raise NotDifferentiableError(Reason.of(ReasonCode.JOIN_ALIAS))
        names = [*(listed or ()), *(name for name, _ in columns[len(listed or ()) :])]
        shown = tuple(
            OutputColumn(name, (sql,)) for name, (_, sql) in zip(names, columns, strict=True) if sql is not None
        )
        block = Block(shown, (tree,), None)
        is_lateral = bool(outer_aliases(block))
        return FromItem(self.reader.number(), block if is_lateral else simplify(block), alias, (), is_lateral)

    def _named(self, only: bool, *, is_lateral: bool) -> FromItem:
        """A table, view, common table expression or function."""
        cursor = self.cursor
        start = cursor.at
        tokens = [cursor.next()]
        while cursor.take("."):
            tokens.append(cursor.next())
        if cursor.peek() == "(" or tokens[0].key == "ROWS":
            return self._call(start, is_lateral=is_lateral)
        if any(not t.is_name for t in tokens):
            raise NotDifferentiableError(Reason.of(ReasonCode.FROM_NOT_UNDERSTOOD, text=cursor.text(start, cursor.at)))
        texts = [cursor.sql[t.start : t.end] for t in tokens]
        if len(texts) == 1:
            name = identifier(texts[0])
            if name not in self.ctes:
                raise NotDifferentiableError(Reason.of(ReasonCode.FROM_UNKNOWN, name=texts[0]))
            cte = self.ctes[name]
            if cte.is_self:
                return self._call(start, is_lateral=False)
            return self._part(
                self.reader.cte(name, cte, top=self.top, keeps_order=self.keeps_order), texts[0], cte.columns
            )
        relation = self.reader.find(identifier(texts[-2]), identifier(texts[-1]))
        if relation.kind == "v":
            if relation.query is None:
                raise NotDifferentiableError(Reason.of(ReasonCode.VIEW_UNREADABLE, view=relation.name))
            if relation.is_barrier:
                raise NotDifferentiableError(Reason.of(ReasonCode.SECURITY_BARRIER, view=relation.name))
            inner = Cursor(relation.query.strip().rstrip(";"))
            below = self.reader.query(inner, {}, top=self.top, keeps_order=self.keeps_order)
            return self._part(below, texts[-1], tuple(c.name for c in relation.columns))
        if only and relation.has_children:
            raise NotDifferentiableError(Reason.of(ReasonCode.ONLY_OF_PARENT, relation=relation.name))
        alias, columns = self._alias(texts[-1])
        computed = self.reader.computed(relation)
        if computed is None:
            return FromItem(self.reader.number(), self.reader.scan(relation, columns), alias)
        plan, positions = computed
        names = [*(columns or ()), *(c.name for c in relation.columns[len(columns or ()) :])]
        node = with_column_names(plan, tuple(names[i] for i in positions))
        assert not isinstance(node, Aggregate)
        return FromItem(self.reader.number(), node, alias)

    def _call(self, start: int, *, is_lateral: bool) -> FromItem:
        """A function with everything up to the next item, including its alias. ROWS FROM (...) is one, too."""
        cursor = self.cursor
        cursor.at = start + 2 if cursor.tokens[start].key == "ROWS" else start
        cursor.until(*_AFTER_ITEM)
        alias = cursor.last_name(start, cursor.at)
        text = self.reader.text(cursor, self.ctes, start, cursor.at)
        return FromItem(self.reader.number(), None, alias, text, is_lateral)

    def _part(
        self, plan: Plan, default: str | None, columns: tuple[str, ...] | None, *, is_lateral: bool = False
    ) -> FromItem:
        alias, listed = self._alias(default)
        column_names = columns
        if listed is not None:
            column_names = (*listed, *(column_names or output_names(plan))[len(listed) :])
        if column_names is not None:
            plan = with_column_names(plan, column_names)
        if isinstance(plan, Aggregate):
            self.folded = (plan, alias)
            return FromItem(self.reader.number(), None, alias)
        node: Node = plan
        return FromItem(self.reader.number(), node, alias, (), is_lateral)

    def _alias(self, default: str | None) -> tuple[str, tuple[str, ...] | None]:
        cursor = self.cursor
        cursor.take("AS")
        if self._alias_follows():
            token = cursor.next()
            alias = cursor.sql[token.start : token.end]
        elif default is None:
            raise NotDifferentiableError(Reason.of(ReasonCode.FROM_WITHOUT_ALIAS))
        else:
            alias = default
        columns = cursor.names() if cursor.peek() == "(" else None
        if cursor.peek() == "TABLESAMPLE":
            raise NotDifferentiableError(Reason.of(ReasonCode.TABLESAMPLE, relation=default or alias))
        return alias, columns

    def _alias_follows(self) -> bool:
        if self.cursor.at >= self.cursor.stop:
            return False
        token = self.cursor.tokens[self.cursor.at]
        return token.is_name and token.key not in (*_AFTER_ITEM, "TABLESAMPLE")
