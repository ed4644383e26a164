"""The delta of WITH RECURSIVE, from the stored rows of its result and the deltas of its tables.

The recursive term (`step`) is linear in the rows that it reads of the recursion itself, so a row of the result is the
end of derivations: a row of the non-recursive term (`first`), then one application of the step after the other. A
window deletes derivations (with a deleted row of the first term or of a table) and inserts others.

UNION ALL counts derivations. Each deleted derivation is found by its last deleted row, each inserted one by its first
inserted row; `surviving` table rows are in both states:

    deleted  = closure(d- first, step(stored; d-),            step over surviving rows)
    inserted = closure(d+ first, step(stored - deleted; d+),  step over new rows)
    dR = inserted - deleted

UNION keeps a row while it has a derivation. Delete and rederive:

    overdeleted = closure(d- first, step(stored; d-),  step over old rows): all rows with a deleted derivation
    retained    = stored - overdeleted
    inserted    = closure(overdeleted rows that are first rows or steps from retained rows, d+ first,
                  step(retained; d+),  step over new rows), without retained rows
    dR = inserted - overdeleted

    in:  WITH RECURSIVE r AS (SELECT a FROM s UNION SELECT e.b FROM r JOIN e ON e.a = r.a) SELECT a FROM r
    out: WITH RECURSIVE x AS (SELECT a FROM d- s UNION SELECT e.b FROM stored JOIN d- e ... UNION SELECT e.b FROM x
         JOIN old e ...), ..., SELECT a, -1 FROM overdeleted UNION ALL SELECT a, 1 FROM inserted

Every derivation that is followed exists in the old or in the new state, so this terminates where PostgreSQL's own
evaluation terminates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import is_null, row_text
from pgtrickle.pipeline.differentiate.as_of import copies
from pgtrickle.pipeline.differentiate.linear import W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, NEW, OLD, Statement, View
from pgtrickle.pipeline.plan.names import alias_of, conjuncts
from pgtrickle.pipeline.plan.nodes import (
    Block,
    FromItem,
    Join,
    Node,
    OutputColumn,
    Recursive,
    Scan,
    Tree,
    Values,
    block_texts,
    from_items,
    joins,
    plain_sql,
    subqueries,
)
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses

SURVIVING, DELETED, INSERTED = "kept", "gone", "come"
N = '"__pgt_n"'
X = '"__pgt_x"'

Delta = Callable[[Statement, Node], list[str]]


@dataclass(frozen=True, slots=True)
class RecursionPlan:
    """A recursion whose result is stored row by row.

    `self_item`: the FROM item of the step that is the recursion itself. `columns`: for each column of the result the
    position of the stored one. `keys`: columns of the result that the step compares with columns of its tables.
    """

    node: Recursive
    step: Block
    self_item: FromItem
    columns: tuple[int, ...]
    keys: tuple[str, ...]


# -- shape
# --------------------------------------------------------------------------------------------------------------


def recursion_plan(plan: Node) -> RecursionPlan | None:
    """For `SELECT columns FROM recursion` with all its columns, and a step that is an inner join with tables."""
    node = _recursion_below(plan)
    if node is None or not isinstance(plan, Block):
        return None
    columns = _stored(plan.columns, alias_of(from_items(plan)[0]), node.output_names)
    if columns is None or not isinstance(node.step, Block):
        return None
    step = node.step
    self_item = _self_item(node, step)
    if self_item is None:
        return None
    tables = [p for p in from_items(step) if isinstance(p.node, Scan)]
    keys = _keys(step, self_item, node.names)
    if not keys and (tables or node.operator == "UNION"):
        return None
    return RecursionPlan(node, step, self_item, columns, keys)


def _recursion_below(plan: Node) -> Recursive | None:
    """The recursion of which a plan is a projection."""
    if not isinstance(plan, Block) or plan.region is not None or plan.where is not None or len(from_items(plan)) != 1:
        return None
    node = from_items(plan)[0].node
    return node if isinstance(node, Recursive) else None


def _stored(columns: Sequence[OutputColumn], alias: str, shown: Sequence[str]) -> tuple[int, ...] | None:
    positions: dict[str, int] = {}
    for position, column in enumerate(columns):
        if subqueries(column.text):
            return None
        cursor = Cursor(plain_sql(column.text))
        start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
        if stop - start == 3 and cursor.tokens[start + 1].key == "." and cursor.name_at(start) == alias:
            start += 2
        if stop - start == 1 and cursor.tokens[start].is_name:
            positions.setdefault(cursor.name_at(start), position)
    return (
        tuple(positions[n] for n in shown) if len(set(shown)) == len(shown) and positions.keys() >= set(shown) else None
    )


def _self_item(node: Recursive, step: Block) -> FromItem | None:
    """The FROM item that is the recursion; None where the step is not an inner join of that and tables."""
    is_inner = all(j.kind in ("JOIN", "CROSS JOIN") for tree in step.trees for j in joins(tree))
    if not is_inner or step.region is not None or any(subqueries(t) for t in block_texts(step)):
        return None
    references = [p for p in from_items(step) if p.node is None]
    if len(references) != 1 or subqueries(references[0].call) or any(p.is_lateral for p in from_items(step)):
        return None
    if not all(isinstance(p.node, Scan | Values) for p in from_items(step) if p.node is not None):
        return None
    cursor = Cursor(plain_sql(references[0].call))
    is_plain = len(cursor.tokens) <= 3 and all(t.is_name for t in cursor.tokens)  # name, name alias, name AS alias
    return references[0] if is_plain and cursor.name_at(0) == identifier(node.name) else None


def _keys(step: Block, self_item: FromItem, names: Sequence[str]) -> tuple[str, ...]:
    """The columns of the recursion that the step compares by equality with expressions over other items."""
    all_joins = [j for tree in step.trees for j in joins(tree)]
    conditions = [j.on for j in all_joins if j.on is not None]
    conditions += [step.where] if step.where is not None else []
    compared = [n for j in all_joins if j.using for n in Cursor(j.using).names()]
    for text in (c for condition in conditions for c in conjuncts(condition)):
        compared += _compared_columns(Cursor(plain_sql(text)), alias_of(self_item))
    return tuple(dict.fromkeys(n for n in compared if n in names))


def _compared_columns(cursor: Cursor, alias: str) -> list[str]:
    """The columns under `alias` that a condition sets equal to an expression over other aliases."""
    start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
    sides = cursor.split(start, stop, "=")
    if len(sides) != 2 or cursor.has_at_depth_0(start, stop, "OR", "NOT", "IS"):
        return []
    columns = []
    for (a, b), (c, d) in (sides, sides[::-1]):
        others = {cursor.name_at(i) for i in range(c, d - 1) if cursor.tokens[i + 1].key == "."} - {alias}
        if b - a == 3 and cursor.tokens[a + 1].key == "." and cursor.name_at(a) == alias and others:
            columns.append(cursor.name_at(a + 2))
    return columns


# -- change
# --------------------------------------------------------------------------------------------------------------


def delta(statement: Statement, plan: RecursionPlan, stored: str, names: Sequence[str], changes: Delta) -> list[str]:
    """Signed rows of the result. `stored`: the stream table. `names`: its columns. `changes`: delta of a plan."""
    computed = _RecursiveDelta(statement, plan, stored, names, changes)
    return computed.union_all_delta() if plan.node.operator == "UNION ALL" else computed.union_delta()


class _RecursiveDelta:
    def __init__(
        self, statement: Statement, plan: RecursionPlan, stored: str, names: Sequence[str], changes: Delta
    ) -> None:
        self.statement = statement
        self.plan = plan
        self.names = plan.node.names
        self.listed = ", ".join(quote_ident(n) for n in self.names)
        columns = [
            f"{quote_ident(names[p])} AS {quote_ident(n)}" for n, p in zip(self.names, plan.columns, strict=True)
        ]
        self.rows_of_table = f"SELECT {', '.join(columns)} FROM {stored}"
        self.rows_with_place = f"SELECT {', '.join(columns)}, ctid AS __pgt_id FROM {stored}"
        self.first = self._first(changes)
        self.changed = [
            p for p in from_items(plan.step) if isinstance(p.node, Scan) and p.node.relation.relid in statement.changed
        ]

    # -- UNION ALL

    def union_all_delta(self) -> list[str]:
        stored = f"({self.rows_of_table})"
        deleted = [self._step(stored, roles) for roles in self._one_by_one(DELETED, SURVIVING, OLD)]
        deleted_rows = self._closure([*self._first_rows(DELETED), *deleted], self._all(SURVIVING), "UNION ALL")
        inserted = []
        for roles in self._one_by_one(INSERTED, SURVIVING, NEW):
            inserted.append(f"SELECT q.*, 1 FROM ({self._step(stored, roles)}) AS q")
            if deleted_rows is not None:
                inserted.append(f"SELECT q.*, -1 FROM ({self._step(_small(deleted_rows, self.names[0]), roles)}) AS q")
        seeds = self._first_rows(INSERTED)
        if inserted:
            seeds += self._copies(self._consolidated(inserted), INSERTED)
        inserted_rows = self._closure(seeds, {}, "UNION ALL")
        return [
            f"SELECT q.*, {sign} AS {W} FROM {n} AS q"
            for n, sign in ((deleted_rows, -1), (inserted_rows, 1))
            if n is not None
        ]

    # -- UNION

    def union_delta(self) -> list[str]:
        stored = f"({self.rows_of_table})"
        deleted = [self._step(stored, {**self._all(OLD), p.number: DELETED}) for p in self.changed]
        overdeleted = self._closure([*self._first_rows(DELETED), *deleted], self._all(OLD), "UNION")
        queries, seeds, retained = [], [], f"SELECT {self.listed} FROM ({self.rows_of_table}) AS s"
        if overdeleted is not None:
            same = f"SELECT s.* FROM ({self.rows_with_place}) AS s JOIN {_small(overdeleted, self.names[0])} AS t ON"
            matches = [f"{same} {self._same('s', 't', w)} WHERE {self._any(overdeleted, w)}" for w in self.null_cases]
            overdeleted_rows = self.statement.share(" UNION ALL ".join(matches), "g")
            queries.append(f"SELECT {self.listed}, -1 AS {W} FROM {overdeleted_rows}")
            retained = (
                f"SELECT {self.listed} FROM ({self.rows_with_place}) AS s "
                f"WHERE s.__pgt_id NOT IN (SELECT g.__pgt_id FROM {overdeleted_rows} AS g)"
            )
            rederived = [self.statement.render(self.plan.node.first, ALL_NEW), self._step(f"({retained})", {})]
            for condition in self._in_rows(overdeleted):
                seeds += [f"SELECT q.* FROM ({sql}) AS q({self.listed}) WHERE {condition}" for sql in rederived]
        inserted = [self._step(f"({retained})", {p.number: INSERTED}) for p in self.changed]
        seeds += [self._not_in(retained, sql) for sql in (*self._first_rows(INSERTED), *inserted)]
        inserted_rows = self._closure(seeds, {}, "UNION", lambda sql: self._not_in(retained, sql))
        if inserted_rows is not None:
            queries.append(f"SELECT q.*, 1 AS {W} FROM {inserted_rows} AS q")
        return queries

    @property
    def null_cases(self) -> tuple[str, ...]:
        """How rows are compared: by equality, which uses indexes and hashes but fails for NULL, then rows with NULL."""
        return ("equal", "null", "null_key") if set(self.names) > set(self.plan.keys) else ("equal", "null_key")

    def _same(self, one: str, other: str, null_case: str) -> str:
        """Whether two rows are equal, for those rows of `other` that this case covers."""
        keys = [quote_ident(n) for n in self.plan.keys]
        rest = [quote_ident(n) for n in self.names if n not in self.plan.keys]
        equal = keys if null_case == "null" else [*keys, *rest] if null_case == "equal" else []
        like = rest if null_case == "null" else [] if null_case == "equal" else [*keys, *rest]
        conditions = [f"{one}.{c} = {other}.{c}" for c in equal]
        conditions += [f"{one}.{c} IS NOT DISTINCT FROM {other}.{c}" for c in like]
        if null_case != "equal":
            conditions += [self._has_null(other, null_case), self._has_null(one, null_case)]
        return f"({' AND '.join(conditions)})"

    def _has_null(self, alias: str, null_case: str) -> str:
        listed = [n for n in self.names if (n in self.plan.keys) == (null_case == "null_key")]
        return f"({' OR '.join(is_null(f'{alias}.{quote_ident(n)}') for n in listed)})"

    def _any(self, rows: str, null_case: str) -> str:
        """Whether there are rows that this case covers; PostgreSQL evaluates this before it reads anything else."""
        return (
            "true" if null_case == "equal" else f"(SELECT bool_or({self._has_null('t', null_case)}) FROM {rows} AS t)"
        )

    def _not_in(self, retained: str, sql: str) -> str:
        """The rows of `sql` that are not in `retained`, row by row (OFFSET 0): a join would scan for NULLs."""
        conditions = []
        for null_case in self.null_cases:
            exists = f"EXISTS (SELECT FROM ({retained}) AS s WHERE {self._same('s', 'q', null_case)} OFFSET 0)"
            conditions.append(
                f"NOT {exists}" if null_case == "equal" else f"NOT ({self._has_null('q', null_case)} AND {exists})"
            )
        return f"SELECT q.* FROM ({sql} OFFSET 0) AS q({self.listed}) WHERE {' AND '.join(conditions)}"

    def _in_rows(self, rows: str) -> list[str]:
        """Conditions on q that together select the rows that are in `rows`."""
        return [
            f"{self._any(rows, w)} AND EXISTS "
            f"(SELECT FROM {_small(rows, self.names[0])} AS t WHERE {self._same('q', 't', w)})"
            for w in self.null_cases
        ]

    # -- both

    def _first(self, changes: Delta) -> str | None:
        branches = [f"SELECT q.* FROM ({sql}) AS q" for sql in changes(self.statement, self.plan.node.first)]
        return self._consolidated(branches) if branches else None

    def _first_rows(self, role: str) -> list[str]:
        return self._copies(self.first, role) if self.first is not None else []

    def _consolidated(self, signed: Sequence[str]) -> str:
        """The name of the consolidated rows, each with its net count. Rows are compared as texts."""
        key = row_text([f"q.{quote_ident(n)}" for n in self.names])
        union = " UNION ALL ".join(f"({sql})" for sql in signed)
        window = "(PARTITION BY k.__pgt_k)"
        counted = f"sum(k.{W}) OVER {window} AS {N}, row_number() OVER {window} AS __pgt_i"
        keyed = f"SELECT q.*, {key} AS __pgt_k FROM ({union}) AS q({self.listed}, {W})"
        rows = f"SELECT k.*, {counted} FROM ({keyed}) AS k"
        return self.statement.share(f"SELECT {self.listed}, {N} FROM ({rows}) AS r WHERE __pgt_i = 1 AND {N} <> 0", "c")

    def _copies(self, counted: str, role: str) -> list[str]:
        sign = "-" if role == DELETED else ""
        return [f"SELECT {self.listed} FROM {counted} AS q, {copies(f'{sign}q.{N}')} WHERE {sign}q.{N} > 0"]

    def _closure(
        self,
        seeds: Sequence[str],
        roles: Mapping[int, str],
        word: str,
        only: Callable[[str], str] = lambda sql: sql,
    ) -> str | None:
        """The name of the closure of these rows under the step."""
        if not seeds:
            return None
        # The stored columns have the types of the recursion, which the first branch of this one needs to have, too.
        types = f"SELECT {self.listed} FROM ({self.rows_of_table}) AS s WHERE false"
        union = " UNION ALL ".join(f"({sql})" for sql in (types, *seeds))
        step = only(self._step(_small(X, self.names[0]), roles))
        body = f"{X}({self.listed}) AS ((SELECT * FROM ({union}) AS q) {word} ({step}))"
        return self.statement.share(f"WITH RECURSIVE {body} SELECT * FROM {X}", "x")

    def _all(self, role: str) -> dict[int, str]:
        return {p.number: role for p in self.changed}

    def _one_by_one(self, role: str, before: str, after: str) -> list[dict[int, str]]:
        """Each changed item in turn has `role`; items left of it have `before`, items right of it `after`."""
        numbers = [p.number for p in self.changed]
        return [
            {**dict.fromkeys(numbers[:i], before), n: role, **dict.fromkeys(numbers[i + 1 :], after)}
            for i, n in enumerate(numbers)
        ]

    def _step(self, source: str, roles: Mapping[int, str]) -> str:
        """The step from these rows, with its tables in the new state unless `roles` has another."""
        conditions: list[str] = []

        def put(part: FromItem) -> FromItem:
            if part is self.plan.self_item:
                return replace(part, call=(f"{source} AS {part.alias}",))
            role = roles.get(part.number, NEW)
            if role in (NEW, OLD):
                return part
            assert isinstance(part.node, Scan)
            if role == SURVIVING:
                rows, condition = self.statement.scan_as_of(part.node, part.alias, surviving_only=True)
                conditions.append(condition)
                return replace(part, node=None, call=(f"({rows}) AS {part.alias}",))
            rows = self.statement.net_changes_of(part.node, "D" if role == DELETED else "I")
            return replace(part, node=None, call=(f"(SELECT * FROM {rows}) AS {part.alias}",))

        block = replace(self.plan.step, trees=tuple(_mapped(t, put) for t in self.plan.step.trees))
        states = {n: r for n, r in roles.items() if r == OLD}
        return self.statement.render_block(block, View(NEW, states), conditions=conditions).sql


def _small(rows: str, column: str) -> str:
    """Rows of a recursion with conditions that are always true: the planner estimates a million rows for a recursion.

    It estimates that each condition selects one row in 200, so that it looks tables up by key.
    """
    holds = f"((f.{quote_ident(column)} IS NULL)::int4 * 0) = 0"
    return f"(SELECT f.* FROM {rows} AS f WHERE {holds} AND {holds.replace('* 0', '& 0')})"


def _mapped(tree: Tree, put: Callable[[FromItem], FromItem]) -> Tree:
    match tree:
        case FromItem():
            return put(tree)
        case Join():
            return Join(tree.kind, _mapped(tree.left, put), _mapped(tree.right, put), tree.on, tree.using)
        case _:
            assert_never(tree)
