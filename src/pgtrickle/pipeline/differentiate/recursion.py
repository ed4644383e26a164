"""The change of WITH RECURSIVE from the stored rows of its result and the changes.

The step is linear in the rows that it goes on from, so a row of the result is the end of paths: a first row, then one
combination of the step's tables after the other. A window takes some paths away (those with a first row or a table row
that has gone) and adds some (with one that has come); what is in both states is kept.

UNION ALL counts paths.

    gone = paths by their last loss:   lost first rows, step(stored; losses),           then steps over kept rows
    come = paths by their first gain:  gained first rows, step(stored - gone; gains),   then steps over new rows

UNION asks whether there is a path.

    doubted = lost first rows, step(stored; losses), then steps over old rows: all rows that a loss leads to
    sure    = stored - doubted
    come    = doubted rows that are first rows or steps from a sure one, gained first rows, step(sure; gains),
              then steps over new rows, as far as they are not sure

and the change is `come - doubted`. Losses and gains are steps with at least one row that has gone or come. Every path
that is walked is one of the old or of the new state, so this ends where PostgreSQL's own evaluation ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import row_text
from pgtrickle.pipeline.differentiate.as_of import copies
from pgtrickle.pipeline.differentiate.linear import W
from pgtrickle.pipeline.differentiate.states import ALL_NEW, NEW, OLD, Statement, View
from pgtrickle.pipeline.plan.names import conjuncts, own
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
    joins,
    parts,
    plain,
    subs,
    texts,
)
from pgtrickle.pipeline.text.tokens import Cursor, identifier, strip_parentheses

KEPT, GONE, COME = "kept", "gone", "come"
N = '"__pgt_n"'
X = '"__pgt_x"'

Delta = Callable[[Statement, Node], list[str]]


@dataclass(frozen=True, slots=True)
class RecursionPlan:
    """A recursion whose result is stored row by row.

    `columns`: for each column of the result the position of the stored one. `keys`: columns of the result by which a
    step finds what it goes on from.
    """

    node: Recursive
    step: Block
    itself: FromItem
    columns: tuple[int, ...]
    keys: tuple[str, ...]


# -- shape
# --------------------------------------------------------------------------------------------------------------


def walk_of(plan: Node) -> RecursionPlan | None:
    """For `SELECT columns FROM recursion` with all columns of it, and a step that is an inner join of tables."""
    node = _only(plan)
    if node is None or not isinstance(plan, Block):
        return None
    columns = _stored(plan.columns, own(parts(plan)[0]), node.shown)
    if columns is None or not isinstance(node.step, Block):
        return None
    step = node.step
    itself = _itself(node, step)
    if itself is None:
        return None
    tables = [p for p in parts(step) if isinstance(p.node, Scan)]
    keys = _keys(step, itself, node.names)
    if not keys and (tables or node.word == "UNION"):
        return None
    return RecursionPlan(node, step, itself, columns, keys)


def _only(plan: Node) -> Recursive | None:
    """The recursion of which a plan is a projection."""
    if not isinstance(plan, Block) or plan.region is not None or plan.where is not None or len(parts(plan)) != 1:
        return None
    node = parts(plan)[0].node
    return node if isinstance(node, Recursive) else None


def _stored(columns: Sequence[OutputColumn], alias: str, shown: Sequence[str]) -> tuple[int, ...] | None:
    found: dict[str, int] = {}
    for position, column in enumerate(columns):
        if subs(column.text):
            return None
        cursor = Cursor(plain(column.text))
        start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
        if stop - start == 3 and cursor.tokens[start + 1].key == "." and cursor.name_at(start) == alias:
            start += 2
        if stop - start == 1 and cursor.tokens[start].is_name:
            found.setdefault(cursor.name_at(start), position)
    return tuple(found[n] for n in shown) if len(set(shown)) == len(shown) and found.keys() >= set(shown) else None


def _itself(node: Recursive, step: Block) -> FromItem | None:
    """The part that is the recursion; None where the step is not an inner join of that and tables."""
    is_inner = all(j.kind in ("JOIN", "CROSS JOIN") for tree in step.trees for j in joins(tree))
    if not is_inner or step.region is not None or any(subs(t) for t in texts(step)):
        return None
    found = [p for p in parts(step) if p.node is None]
    if len(found) != 1 or subs(found[0].call) or any(p.is_lateral for p in parts(step)):
        return None
    if not all(isinstance(p.node, Scan | Values) for p in parts(step) if p.node is not None):
        return None
    cursor = Cursor(plain(found[0].call))
    is_plain = len(cursor.tokens) <= 3 and all(t.is_name for t in cursor.tokens)  # name, name alias, name AS alias
    return found[0] if is_plain and cursor.name_at(0) == identifier(node.name) else None


def _keys(step: Block, itself: FromItem, names: Sequence[str]) -> tuple[str, ...]:
    """Its columns that an equality compares with something else."""
    all_joins = [j for tree in step.trees for j in joins(tree)]
    conditions = [j.on for j in all_joins if j.on is not None]
    conditions += [step.where] if step.where is not None else []
    found = [n for j in all_joins if j.using for n in Cursor(j.using).names()]
    for text in (c for condition in conditions for c in conjuncts(condition)):
        found += _compared_columns(Cursor(plain(text)), own(itself))
    return tuple(dict.fromkeys(n for n in found if n in names))


def _compared_columns(cursor: Cursor, alias: str) -> list[str]:
    """The columns under `alias` that a condition sets equal to an expression over other aliases."""
    start, stop = strip_parentheses(cursor.tokens, 0, len(cursor.tokens))
    sides = cursor.split(start, stop, "=")
    if len(sides) != 2 or cursor.has_at_depth_0(start, stop, "OR", "NOT", "IS"):
        return []
    found = []
    for (a, b), (c, d) in (sides, sides[::-1]):
        others = {cursor.name_at(i) for i in range(c, d - 1) if cursor.tokens[i + 1].key == "."} - {alias}
        if b - a == 3 and cursor.tokens[a + 1].key == "." and cursor.name_at(a) == alias and others:
            found.append(cursor.name_at(a + 2))
    return found


# -- change
# --------------------------------------------------------------------------------------------------------------


def delta(into: Statement, walk: RecursionPlan, stored: str, names: Sequence[str], changes: Delta) -> list[str]:
    """Signed rows of the result. `stored` is the table, `names` its columns; `changes` gives those of a plan below."""
    asked = _Asked(into, walk, stored, names, changes)
    return asked.paths() if walk.node.word == "UNION ALL" else asked.rows()


class _Asked:
    def __init__(self, into: Statement, walk: RecursionPlan, stored: str, names: Sequence[str], changes: Delta) -> None:
        self.into = into
        self.walk = walk
        self.names = walk.node.names
        self.listed = ", ".join(quote_ident(n) for n in self.names)
        columns = [
            f"{quote_ident(names[p])} AS {quote_ident(n)}" for n, p in zip(self.names, walk.columns, strict=True)
        ]
        self.rows_of_table = f"SELECT {', '.join(columns)} FROM {stored}"
        self.rows_with_place = f"SELECT {', '.join(columns)}, ctid AS __pgt_id FROM {stored}"
        self.first = self._first(changes)
        self.changed = [
            p for p in parts(walk.step) if isinstance(p.node, Scan) and p.node.relation.relid in into.changed
        ]

    # -- UNION ALL

    def paths(self) -> list[str]:
        stored = f"({self.rows_of_table})"
        losses = [self._step(stored, roles) for roles in self._one_by_one(GONE, KEPT, OLD)]
        gone = self._closure([*self._first_rows(GONE), *losses], self._all(KEPT), "UNION ALL")
        gains = []
        for roles in self._one_by_one(COME, KEPT, NEW):
            gains.append(f"SELECT q.*, 1 FROM ({self._step(stored, roles)}) AS q")
            if gone is not None:
                gains.append(f"SELECT q.*, -1 FROM ({self._step(_few(gone, self.names[0]), roles)}) AS q")
        seeds = self._first_rows(COME)
        if gains:
            seeds += self._copies(self._netted(gains), COME)
        come = self._closure(seeds, {}, "UNION ALL")
        return [f"SELECT q.*, {sign} AS {W} FROM {n} AS q" for n, sign in ((gone, -1), (come, 1)) if n is not None]

    # -- UNION

    def rows(self) -> list[str]:
        stored = f"({self.rows_of_table})"
        losses = [self._step(stored, {**self._all(OLD), p.number: GONE}) for p in self.changed]
        doubted = self._closure([*self._first_rows(GONE), *losses], self._all(OLD), "UNION")
        found, seeds, sure = [], [], f"SELECT {self.listed} FROM ({self.rows_of_table}) AS s"
        if doubted is not None:
            same = f"SELECT s.* FROM ({self.rows_with_place}) AS s JOIN {_few(doubted, self.names[0])} AS t ON"
            found_again = [f"{same} {self._same('s', 't', w)} WHERE {self._any(doubted, w)}" for w in self.ways]
            held = self.into.share(" UNION ALL ".join(found_again), "g")
            found.append(f"SELECT {self.listed}, -1 AS {W} FROM {held}")
            sure = (
                f"SELECT {self.listed} FROM ({self.rows_with_place}) AS s "
                f"WHERE s.__pgt_id NOT IN (SELECT g.__pgt_id FROM {held} AS g)"
            )
            again = [self.into.render(self.walk.node.first, ALL_NEW), self._step(f"({sure})", {})]
            for condition in self._among(doubted):
                seeds += [f"SELECT q.* FROM ({sql}) AS q({self.listed}) WHERE {condition}" for sql in again]
        gains = [self._step(f"({sure})", {p.number: COME}) for p in self.changed]
        seeds += [self._unless(sure, sql) for sql in (*self._first_rows(COME), *gains)]
        come = self._closure(seeds, {}, "UNION", lambda sql: self._unless(sure, sql))
        if come is not None:
            found.append(f"SELECT q.*, 1 AS {W} FROM {come} AS q")
        return found

    @property
    def ways(self) -> tuple[str, ...]:
        """How rows are compared: equality finds rows by keys and by hash, but no NULLs. Those are few, if any."""
        return ("equal", "null", "null key") if set(self.names) > set(self.walk.keys) else ("equal", "null key")

    def _same(self, one: str, other: str, way: str) -> str:
        """Whether two rows are equal, for those of `other` that this way is for."""
        keys = [quote_ident(n) for n in self.walk.keys]
        rest = [quote_ident(n) for n in self.names if n not in self.walk.keys]
        equal = keys if way == "null" else [*keys, *rest] if way == "equal" else []
        like = rest if way == "null" else [] if way == "equal" else [*keys, *rest]
        conditions = [f"{one}.{c} = {other}.{c}" for c in equal]
        conditions += [f"{one}.{c} IS NOT DISTINCT FROM {other}.{c}" for c in like]
        if way != "equal":
            conditions += [self._has_null(other, way), self._has_null(one, way)]
        return f"({' AND '.join(conditions)})"

    def _has_null(self, alias: str, way: str) -> str:
        listed = [n for n in self.names if (n in self.walk.keys) == (way == "null key")]
        return f"({' OR '.join(f'{alias}.{quote_ident(n)} IS NULL' for n in listed)})"

    def _any(self, rows: str, way: str) -> str:
        """Whether there are rows that this way is for; PostgreSQL finds out before it reads anything else."""
        return "true" if way == "equal" else f"(SELECT bool_or({self._has_null('t', way)}) FROM {rows} AS t)"

    def _unless(self, sure: str, sql: str) -> str:
        """One row after the other (OFFSET 0), once there are rows: a join would read the table to find NULLs in it."""
        conditions = []
        for way in self.ways:
            exists = f"EXISTS (SELECT FROM ({sure}) AS s WHERE {self._same('s', 'q', way)} OFFSET 0)"
            conditions.append(f"NOT {exists}" if way == "equal" else f"NOT ({self._has_null('q', way)} AND {exists})")
        return f"SELECT q.* FROM ({sql} OFFSET 0) AS q({self.listed}) WHERE {' AND '.join(conditions)}"

    def _among(self, rows: str) -> list[str]:
        """Conditions on q that together let the rows pass that are among these."""
        return [
            f"{self._any(rows, w)} AND EXISTS "
            f"(SELECT FROM {_few(rows, self.names[0])} AS t WHERE {self._same('q', 't', w)})"
            for w in self.ways
        ]

    # -- both

    def _first(self, changes: Delta) -> str | None:
        found = [f"SELECT q.* FROM ({sql}) AS q" for sql in changes(self.into, self.walk.node.first)]
        return self._netted(found) if found else None

    def _first_rows(self, role: str) -> list[str]:
        return self._copies(self.first, role) if self.first is not None else []

    def _netted(self, signed: Sequence[str]) -> str:
        """The name of rows with how many of them there are in the end; texts tell them apart, as everywhere."""
        key = row_text([f"q.{quote_ident(n)}" for n in self.names])
        union = " UNION ALL ".join(f"({sql})" for sql in signed)
        window = "(PARTITION BY k.__pgt_k)"
        counted = f"sum(k.{W}) OVER {window} AS {N}, row_number() OVER {window} AS __pgt_i"
        keyed = f"SELECT q.*, {key} AS __pgt_k FROM ({union}) AS q({self.listed}, {W})"
        rows = f"SELECT k.*, {counted} FROM ({keyed}) AS k"
        return self.into.share(f"SELECT {self.listed}, {N} FROM ({rows}) AS r WHERE __pgt_i = 1 AND {N} <> 0", "c")

    def _copies(self, counted: str, role: str) -> list[str]:
        sign = "-" if role == GONE else ""
        return [f"SELECT {self.listed} FROM {counted} AS q, {copies(f'{sign}q.{N}')} WHERE {sign}q.{N} > 0"]

    def _closure(
        self,
        seeds: Sequence[str],
        roles: Mapping[int, str],
        word: str,
        only: Callable[[str], str] = lambda sql: sql,
    ) -> str | None:
        """The name of these rows and of what steps lead to from them."""
        if not seeds:
            return None
        # The stored columns have the types of the recursion, which its own first branch has to have already.
        types = f"SELECT {self.listed} FROM ({self.rows_of_table}) AS s WHERE false"
        union = " UNION ALL ".join(f"({sql})" for sql in (types, *seeds))
        step = only(self._step(_few(X, self.names[0]), roles))
        body = f"{X}({self.listed}) AS ((SELECT * FROM ({union}) AS q) {word} ({step}))"
        return self.into.share(f"WITH RECURSIVE {body} SELECT * FROM {X}", "x")

    def _all(self, role: str) -> dict[int, str]:
        return {p.number: role for p in self.changed}

    def _one_by_one(self, role: str, before: str, after: str) -> list[dict[int, str]]:
        """Each changed part in turn: combinations of rows by the first of their parts that has this role."""
        numbers = [p.number for p in self.changed]
        return [
            {**dict.fromkeys(numbers[:i], before), n: role, **dict.fromkeys(numbers[i + 1 :], after)}
            for i, n in enumerate(numbers)
        ]

    def _step(self, source: str, roles: Mapping[int, str]) -> str:
        """The step from these rows, with its tables as they are but for those that have a role."""
        conditions: list[str] = []

        def put(part: FromItem) -> FromItem:
            if part is self.walk.itself:
                return replace(part, call=(f"{source} AS {part.alias}",))
            role = roles.get(part.number, NEW)
            if role in (NEW, OLD):
                return part
            assert isinstance(part.node, Scan)
            if role == KEPT:
                rows, condition = self.into.scan_as_of(part.node, part.alias, kept=True)
                conditions.append(condition)
                return replace(part, node=None, call=(f"({rows}) AS {part.alias}",))
            rows = self.into.netted(part.node, "D" if role == GONE else "I")
            return replace(part, node=None, call=(f"(SELECT * FROM {rows}) AS {part.alias}",))

        block = replace(self.walk.step, trees=tuple(_mapped(t, put) for t in self.walk.step.trees))
        states = {n: r for n, r in roles.items() if r == OLD}
        return self.into.block(block, View(NEW, states), conditions=conditions).sql


def _few(rows: str, column: str) -> str:
    """Rows of a recursion, which the planner takes for a million, with conditions that hold for all of them.

    It takes each for one in 200, so that it looks tables up by key, and hashes one where it has no index for that.
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
