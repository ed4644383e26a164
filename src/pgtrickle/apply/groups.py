"""Groups: a state row per group beside the stream table, and the visible row that PostgreSQL computes from it.

A group is found by its identity (Spark's hash of the key) and confirmed by the key itself. The visible row carries
the state row's own number, so two keys with one hash stay two groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.stage import stage_columns
from pgtrickle.apply.target import Target
from pgtrickle.db.roundtrip import Query, Steps, ask
from pgtrickle.errors import InvariantError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import as_text, from_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


Touched = dict[int, int]  # the numbers of groups that a delta was added to, and how many rows each has now


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a measure's state. `fold` is add, least, greatest or set; `base` its type, looked through domains."""

    name: str
    type: str
    fold: str
    base: int = 0


@dataclass(frozen=True, slots=True)
class KeyType:
    """The type of a column of the key, as it is declared; `base`: looked through domains."""

    name: str
    base: int


@dataclass(frozen=True, slots=True)
class Groups:
    """What the apply needs of a fold template. `output(state)` selects the visible rows of a state expression."""

    target: Target
    key_types: tuple[KeyType, ...]
    state: tuple[StateColumn, ...]
    output: Callable[[str], str]
    is_limited: bool = False  # which groups show depends on the others

    def delta_columns(self) -> list[tuple[str, str]]:
        """(name, type) of a delta: identity, weight, key, then each state column and whether it replaces the old."""
        columns = [("h", "int8"), ("n", "int8"), ("k", "text")]
        for column in self.state:
            columns.append((column.name, "text"))
            if column.fold in ("least", "greatest"):
                columns.append((f"{column.name}_set", "bool"))
        return columns

    def load_columns(self) -> list[tuple[str, str]]:
        """(name, type) of a staged load: key, number of rows, state, then the identity."""
        return [("k", "text"), ("n", "int8"), *((c.name, "text") for c in self.state), ("h", "int8")]


@dataclass(frozen=True, slots=True)
class GroupDelta:
    """The change of groups: identity, number of rows that came or went, key, and what is folded into each state column
    (`Groups.delta_columns` after the key). `anew`: identities and keys of groups of which it has the whole state, and
    not a change of it."""

    identities: Sequence[int]
    weights: Sequence[int]
    keys: Sequence[str]
    state: tuple[Sequence[Any], ...] = ()
    anew: tuple[tuple[int, str], ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def columns(self) -> list[Sequence[Any]]:
        """In the order of `Groups.delta_columns`."""
        return [self.identities, self.weights, self.keys, *self.state]


def create_state(conn: Connection, groups: Groups) -> None:
    columns = [
        '"gid" bigint GENERATED ALWAYS AS IDENTITY',
        '"h" bigint NOT NULL',
        '"k" text COLLATE "C" NOT NULL',
        '"n" bigint NOT NULL',
        *(f'"k{i}" {t.name}' for i, t in enumerate(groups.key_types)),
        *(f'"{c.name}" {c.type}' for c in groups.state),
    ]
    table = groups.target.state
    conn.execute(f"DROP TABLE IF EXISTS {table}")
    conn.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
    conn.execute(f'CREATE INDEX ON {table} ("h")')
    conn.execute(f'CREATE UNIQUE INDEX ON {table} ("gid")')


def fold_arrays(groups: Groups, delta: GroupDelta) -> Steps[tuple[int, int]]:
    """Adds a small delta to the state, as array parameters, then updates the visible rows."""
    yield from _emptied(groups, delta.anew)
    touched = yield from add_arrays(groups, delta)
    shown = yield from _show(groups, None if groups.is_limited else list(touched))
    if groups.key_types:
        yield from drop_empty(groups, touched)
    return shown


def fold_staged(conn: Connection, groups: Groups, delta: GroupDelta) -> tuple[int, int]:
    """The same for a large delta, through a staging table."""
    ask(conn, _emptied(groups, delta.anew))
    touched = add_staged(conn, groups, delta)
    shown = ask(conn, _show(groups, None if groups.is_limited else list(touched)))
    if groups.key_types:
        ask(conn, drop_empty(groups, touched))
    return shown


def add_arrays(groups: Groups, delta: GroupDelta) -> Steps[Touched]:
    """Adds a small delta to the state alone."""

    def text() -> str:
        arrays = ", ".join(f"${i}::{t}[]" for i, (_, t) in enumerate(groups.delta_columns(), start=1))
        names = ", ".join(name for name, _ in groups.delta_columns())
        return _add(groups, f"unnest({arrays}) AS d({names})")

    return _checked(groups, dict((yield Query(groups.target.text("add", text), delta.columns()))))


def add_staged(conn: Connection, groups: Groups, delta: GroupDelta) -> Touched:
    stage = stage_columns(conn, groups.delta_columns(), delta.columns())
    return _checked(groups, dict(conn.execute(_add(groups, stage)).fetchall()))


def _emptied(groups: Groups, anew: Sequence[tuple[int, str]]) -> Steps[None]:
    """Before all of their state is added."""
    if anew:
        sets = ['"n" = 0', *(f'"{c.name}" = {0 if c.fold == "add" else "NULL"}' for c in groups.state)]
        source = "unnest($1::int8[], $2::text[]) AS d(h, k)"
        text = f"UPDATE {groups.target.state} AS s SET {', '.join(sets)} FROM {source} WHERE {_MATCH}"
        yield Query(text, [[h for h, _ in anew], [k for _, k in anew]])


def drop_empty(groups: Groups, touched: Touched) -> Steps[None]:
    gids = [gid for gid, n in touched.items() if not n]
    if gids:
        yield Query(f"DELETE FROM {groups.target.state} WHERE gid = ANY ($1::int8[]) AND n = 0", (gids,))


def _add(groups: Groups, source: str) -> str:
    sets = ['"n" = s."n" + d.n', *(f'"{c.name}" = {_folded(c)}' for c in groups.state)]
    state = groups.target.state
    return (
        f"WITH d AS MATERIALIZED (SELECT * FROM {source}), "
        f"u AS (UPDATE {state} AS s SET {', '.join(sets)} FROM d WHERE {_MATCH} RETURNING s.gid, s.n), "
        f"i AS (INSERT INTO {state} ({_state_list(groups)}) SELECT {_state_row(groups)} FROM d "
        f"WHERE NOT EXISTS (SELECT FROM {state} AS s WHERE {_MATCH}) RETURNING gid, n) "
        "SELECT gid, n FROM u UNION ALL SELECT gid, n FROM i"
    )


def _checked(groups: Groups, touched: Touched) -> Touched:
    if any(n < 0 for n in touched.values()):
        raise InvariantError(f"a group of {groups.target.schema}.{groups.target.name} has fewer than no rows")
    return touched


def replace_state(conn: Connection, groups: Groups, stage: str) -> None:
    """Makes the state equal to the staged one (see `load_columns`), by difference."""
    differs = " OR ".join(["s.n <> d.n", *(f"{_text(c)} IS DISTINCT FROM {_new(c)}" for c in groups.state)])
    sets = ['"n" = d.n', *(f'"{c.name}" = {_value(c)}' for c in groups.state)]
    state = groups.target.state
    conn.execute(f"DELETE FROM {state} AS s WHERE NOT EXISTS (SELECT FROM {stage} AS d WHERE {_MATCH})")
    conn.execute(f"UPDATE {state} AS s SET {', '.join(sets)} FROM {stage} AS d WHERE {_MATCH} AND ({differs})")
    conn.execute(
        f"INSERT INTO {state} ({_state_list(groups)}) SELECT {_state_row(groups)} FROM {stage} AS d "
        f"WHERE NOT EXISTS (SELECT FROM {state} AS s WHERE {_MATCH})"
    )
    conn.execute(f"ANALYZE {state}")


def replace_groups(conn: Connection, groups: Groups, stage: str) -> tuple[int, int]:
    """Makes the state equal to the staged one and the visible rows with it, by difference."""
    replace_state(conn, groups, stage)
    state, table = groups.target.state, groups.target.table
    # Rows of groups that are in no state (of an earlier definition, or made by hand), and second rows of one group.
    orphans = conn.execute(
        f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT t.place FROM (SELECT ctid AS place, __pgt_row_id AS gid, "
        f"row_number() OVER (PARTITION BY __pgt_row_id) AS copy FROM {table}) AS t "
        f"WHERE t.copy > 1 OR NOT EXISTS (SELECT FROM {state} AS s WHERE s.gid = t.gid)))"
    ).rowcount
    # All of them, whether or not their state has changed: somebody may have written to the table.
    inserted, deleted = ask(conn, _show(groups, None))
    conn.execute(f"ANALYZE {table}")
    return inserted, deleted + orphans


def _show(groups: Groups, gids: list[int] | None) -> Steps[tuple[int, int]]:
    """Replaces the visible rows of these groups (None: all) where they differ."""
    if gids is None:
        wanted = Query(groups.target.text("show all", lambda: _show_text(groups, is_all=True)))
    else:
        wanted = Query(groups.target.text("show", lambda: _show_text(groups, is_all=False)), (gids,))
    ((inserted, deleted),) = yield wanted
    return inserted, deleted


def _show_text(groups: Groups, *, is_all: bool) -> str:
    target = groups.target
    alive = "live.n > 0" if groups.key_types else "true"
    among = "" if is_all else " AND live.gid = ANY ($1::int8[])"
    output = groups.output(f"(SELECT live.* FROM {target.state} AS live WHERE {alive}{among}) AS s")
    identical = "".join(
        f" AND {as_text(f'o.c{i}', c.base)} IS NOT DISTINCT FROM {as_text(f't.{quote_ident(c.name)}', c.base)}"
        for i, c in enumerate(target.columns)
    )
    same = f"o.gid = t.__pgt_row_id{identical}"
    typed = ", ".join([*(f"o.c{i}" for i in range(len(target.columns))), "o.gid"])
    # Rows come only when others have gone: a unique index of the user's may know both.
    return (
        f"WITH o AS MATERIALIZED ({output}), "
        f"gone AS (DELETE FROM {target.table} AS t WHERE NOT EXISTS (SELECT FROM o WHERE {same})"
        f"{'' if is_all else ' AND t.__pgt_row_id = ANY ($1::int8[])'} RETURNING 1), "
        f"come AS (INSERT INTO {target.table} ({target.column_list()}) SELECT {typed} FROM o "
        f"WHERE NOT EXISTS (SELECT FROM {target.table} AS t WHERE {same}) "
        "AND (SELECT count(*) FROM gone) >= 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM come), (SELECT count(*) FROM gone)"
    )


# s and d are the same group: found by the identity, confirmed by the key, whose text decides equality.
_MATCH = 's.h = d.h AND s.k = d.k COLLATE "C"'


def _state_list(groups: Groups) -> str:
    keys = (f'"k{i}"' for i in range(len(groups.key_types)))
    return ", ".join(['"h"', '"k"', '"n"', *keys, *(f'"{c.name}"' for c in groups.state)])


def _state_row(groups: Groups) -> str:
    keys = [from_text(f"(d.k::text[])[{i}]", t.name, t.base) for i, t in enumerate(groups.key_types, start=1)]
    values = [f"coalesce({_value(c)}, 0)" if c.fold == "add" else _value(c) for c in groups.state]
    return ", ".join(["d.h", "d.k", "d.n", *keys, *values])


def _new(column: StateColumn) -> str:
    return f'd."{column.name}"'


def _value(column: StateColumn) -> str:
    return from_text(_new(column), column.type, column.base)


def _text(column: StateColumn) -> str:
    return as_text(f's."{column.name}"', column.base)


def _folded(column: StateColumn) -> str:
    old, new = f's."{column.name}"', _value(column)
    if column.fold == "add":
        return f"coalesce({old}, 0) + coalesce({new}, 0)"
    if column.fold == "set":
        return new
    extreme = "LEAST" if column.fold == "least" else "GREATEST"
    return f'CASE WHEN d."{column.name}_set" THEN {new} ELSE {extreme}({old}, {new}) END'
