"""Groups: a state row per group beside the stream table, and the visible row that PostgreSQL computes from it.

A group is found by the hash of its key's text and confirmed by the key itself. The visible row contains
the number of the state row, so two keys with the same hash stay two groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.indexes import ROW_ID, ensure_index, index_rows
from pgtrickle.apply.partitions import add_partitions, add_partitions_now, delete_at, key_of_output, place_of
from pgtrickle.apply.stage import stage_columns, table_of, use_memory
from pgtrickle.apply.target import Target, is_empty, same_image, text_hash
from pgtrickle.db.roundtrip import Query, Steps, ask
from pgtrickle.errors import InvariantError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import from_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


FEW_ROWS = 10_000  # changed groups up to which an index is used and no ANALYZE is needed

_EVERY, _AMONG = "", " AND live.gid = ANY ($1::int8[])"

Touched = dict[int, int]  # numbers of the changed groups, and their new row counts


@dataclass(frozen=True, slots=True)
class StateColumn:
    """A column of a measure's state. `fold` is add, least, greatest or set; `base`: its type, domains resolved."""

    name: str
    type: str
    fold: str
    base: int = 0


@dataclass(frozen=True, slots=True)
class KeyType:
    """The declared type of a column of the key; `base`: domains resolved."""

    name: str
    base: int


@dataclass(frozen=True, slots=True)
class Groups:
    """The parts of a fold template that the apply needs. `output(state)` selects the visible rows of a state."""

    target: Target
    key_types: tuple[KeyType, ...]
    state: tuple[StateColumn, ...]
    output: Callable[[str], str]
    is_limited: bool = False  # the visible groups depend on one another

    def delta_columns(self) -> list[tuple[str, str]]:
        """(name, type) of a delta: weight, key, then each state column and whether it replaces the old value."""
        columns = [("n", "int8"), ("k", "text")]
        for column in self.state:
            columns.append((column.name, "text"))
            if column.fold in ("least", "greatest"):
                columns.append((f"{column.name}_set", "bool"))
        return columns

    def decoded_rows(self, texts: str) -> str:
        """A relation (k, n, k0, k1, ...) from one with k and n, for groups without state."""
        keys = "".join(
            f", {from_text(f'(d.k::text[])[{i + 1}]', t.name, t.base)} AS k{i}" for i, t in enumerate(self.key_types)
        )
        return f"(SELECT d.k, d.n{keys} FROM {texts} AS d(k, n))"


@dataclass(frozen=True, slots=True)
class GroupDelta:
    """The delta of groups: change of the row count, key, and the values to fold into each state column
    (`Groups.delta_columns` after the key). `anew`: keys of groups for which it contains the whole state, not a
    change."""

    weights: Sequence[int]
    keys: Sequence[str]
    state: tuple[Sequence[Any], ...] = ()
    anew: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def columns(self) -> list[Sequence[Any]]:
        """In the order of `Groups.delta_columns`."""
        return [self.weights, self.keys, *self.state]


def create_state(conn: Connection, groups: Groups) -> None:
    columns = [
        # Without CACHE, numbering takes as long as writing the rows of a load.
        '"gid" bigint GENERATED ALWAYS AS IDENTITY (CACHE 1000)',
        '"h" bigint NOT NULL',
        '"k" text COLLATE "C" NOT NULL',
        '"n" bigint NOT NULL',
        *(f'"k{i}" {t.name}' for i, t in enumerate(groups.key_types)),
        *(f'"{c.name}" {c.type}' for c in groups.state),
    ]
    table = groups.target.state
    conn.execute(f"DROP TABLE IF EXISTS {table}")
    conn.execute(f"CREATE TABLE {table} ({', '.join(columns)})")


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


def fold_relation(conn: Connection, groups: Groups, relation: str, *, is_added: bool) -> tuple[int, int]:
    """The same for a delta that another engine has staged: a relation with the columns of `delta_columns`. `is_added`:
    it contains changes of the state; otherwise the new state."""
    delta = table_of(conn, "__pgt_delta", f"SELECT d.* FROM {relation} AS d")
    if not is_added:
        source = f"(SELECT {text_hash('u.k')} AS h, u.k FROM {delta} AS u) AS d"
        conn.execute(f"UPDATE {groups.target.state} AS s SET {_nothing(groups)} FROM {source} WHERE {_MATCH}")
    touched = _checked(groups, dict(conn.execute(_add(groups, f"{delta} AS d")).fetchall()))
    shown = ask(conn, _show(groups, None if groups.is_limited else list(touched)))
    if groups.key_types:
        ask(conn, drop_empty(groups, touched))
    return shown


def add_arrays(groups: Groups, delta: GroupDelta) -> Steps[Touched]:
    """Adds a small delta to the state only."""

    def text() -> str:
        arrays = ", ".join(f"${i}::{t}[]" for i, (_, t) in enumerate(groups.delta_columns(), start=1))
        names = ", ".join(name for name, _ in groups.delta_columns())
        return _add(groups, f"unnest({arrays}) AS d({names})")

    return _checked(groups, dict((yield Query(groups.target.text("add", text), delta.columns()))))


def add_staged(conn: Connection, groups: Groups, delta: GroupDelta) -> Touched:
    stage = stage_columns(conn, groups.delta_columns(), delta.columns())
    return _checked(groups, dict(conn.execute(_add(groups, f"{stage} AS d")).fetchall()))


def _emptied(groups: Groups, anew: Sequence[str]) -> Steps[None]:
    """Sets the state of groups to zero before their whole state is added."""
    if anew:
        source = f"(SELECT {text_hash('u.k')} AS h, u.k FROM unnest($1::text[]) AS u(k)) AS d"
        text = f"UPDATE {groups.target.state} AS s SET {_nothing(groups)} FROM {source} WHERE {_MATCH}"
        yield Query(text, [list(anew)])


def _nothing(groups: Groups) -> str:
    return ", ".join(['"n" = 0', *(f'"{c.name}" = {0 if c.fold == "add" else "NULL"}' for c in groups.state)])


def drop_empty(groups: Groups, touched: Touched) -> Steps[None]:
    gids = [gid for gid, n in touched.items() if not n]
    if gids:
        yield Query(f"DELETE FROM {groups.target.state} WHERE gid = ANY ($1::int8[]) AND n = 0", (gids,))


def _add(groups: Groups, source: str) -> str:
    sets = ['"n" = s."n" + d.n', *(f'"{c.name}" = {_folded(c)}' for c in groups.state)]
    state = groups.target.state
    return (
        f"WITH d AS MATERIALIZED (SELECT {text_hash('d.k')} AS h, d.* FROM {source}), "
        f"u AS (UPDATE {state} AS s SET {', '.join(sets)} FROM d WHERE {_MATCH} RETURNING s.gid, s.n), "
        f"i AS (INSERT INTO {state} ({_state_list(groups)}) SELECT {_state_row(groups)} FROM d "
        f"WHERE NOT EXISTS (SELECT FROM {state} AS s WHERE {_MATCH}) RETURNING gid, n) "
        "SELECT gid, n FROM u UNION ALL SELECT gid, n FROM i"
    )


def _checked(groups: Groups, touched: Touched) -> Touched:
    if any(n < 0 for n in touched.values()):
        raise InvariantError(f"a group of {groups.target.schema}.{groups.target.name} has a negative row count")
    return touched


def replace_state(conn: Connection, groups: Groups, content: str) -> None:
    """Makes the state equal to a content, by difference. `content`: a relation with the columns k, n, k0, k1, ...
    and those of the state (pipeline/templates/load_query.py), a table or a subquery in parentheses."""
    state, is_first = groups.target.state, is_empty(conn, groups.target.state)
    loaded = f"(SELECT {text_hash('x.k')} AS h, x.* FROM {content} AS x) AS d"
    columns = [*(f'"k{i}"' for i in range(len(groups.key_types))), *(f'"{c.name}"' for c in groups.state)]
    values = [*(f'd."k{i}"' for i in range(len(groups.key_types))), *map(_loaded, groups.state)]
    insert = (
        f"INSERT INTO {state} ({', '.join(['h', 'k', 'n', *columns])}) "
        f"SELECT {', '.join(['d.h', 'd.k', 'd.n', *values])} FROM"
    )
    if is_first:
        changed = conn.execute(f"{insert} {loaded}").rowcount
        _index_state(conn, groups)
    else:
        _index_state(conn, groups)
        use_memory(conn)
        same = same_image((f's."{c.name}"', _loaded(c), c.base) for c in groups.state)
        # One join finds all groups that differ: they are few, or all of them are new.
        stage = table_of(
            conn,
            "__pgt_changed",
            f"SELECT s.gid, d.* FROM {loaded} FULL JOIN {state} AS s ON {_MATCH} "
            f"WHERE s.gid IS NULL OR d.k IS NULL OR NOT (s.n = d.n AND {same})",
        )
        sets = ['"n" = d.n', *(f'"{c.name}" = {_loaded(c)}' for c in groups.state)]
        changed = sum(
            conn.execute(text).rowcount
            for text in (
                f"DELETE FROM {state} AS s USING {stage} AS d WHERE d.k IS NULL AND s.gid = d.gid",
                f"UPDATE {state} AS s SET {', '.join(sets)} FROM {stage} AS d WHERE d.k IS NOT NULL AND s.gid = d.gid",
                f"{insert} {stage} AS d WHERE d.gid IS NULL",
            )
        )
    if is_first or changed > FEW_ROWS:
        conn.execute(f"ANALYZE {state}")


def _index_state(conn: Connection, groups: Groups) -> None:
    ensure_index(conn, groups.target.state, "h")
    ensure_index(conn, groups.target.state, "gid", is_unique=True)


def _loaded(column: StateColumn) -> str:
    return f"coalesce({_new(column)}, 0)" if column.fold == "add" else _new(column)


def replace_groups(conn: Connection, groups: Groups, content: str) -> tuple[int, int]:
    """Makes the state equal to a content, and then the visible rows, by difference."""
    table = groups.target.table
    is_first = is_empty(conn, table)
    replace_state(conn, groups, content)
    if is_first:
        inserted, deleted = _show_first(conn, groups), 0
        index_rows(conn, groups.target)
    else:
        index_rows(conn, groups.target)
        inserted, deleted = _show_differing(conn, groups)
    if is_first or inserted + deleted > FEW_ROWS:
        conn.execute(f"ANALYZE {table}")
    return inserted, deleted


def _show_differing(conn: Connection, groups: Groups) -> tuple[int, int]:
    """Makes the visible rows equal to those of the state. All are compared, even if their state has not changed,
    because a user may have written to the table."""
    state, table = groups.target.state, groups.target.table
    identical = same_image(_pairs(groups.target))
    row = conn.execute(
        "SELECT count(*) FILTER (WHERE o.gid IS NULL), coalesce(array_agg(coalesce(o.gid, "
        f"t.{ROW_ID})) FILTER (WHERE o.gid IS NULL OR t.ctid IS NULL OR NOT ({identical})), '{{}}') "
        f"FROM ({_output(groups)}) AS o FULL JOIN {table} AS t ON o.gid = t.{ROW_ID}"
    ).fetchone()
    assert row is not None
    strays, gids = row
    twice = conn.execute(f"SELECT EXISTS (SELECT FROM {table} GROUP BY {ROW_ID} HAVING count(*) > 1)").fetchone()
    orphans = 0
    if strays or (twice and twice[0]):
        # Rows without a state (of an earlier definition, or written by hand), and duplicate rows of one group.
        places = (
            f"SELECT v.* FROM (SELECT {place_of(groups.target, 't')}, t.{ROW_ID} AS gid, "
            f"row_number() OVER (PARTITION BY t.{ROW_ID}) AS copy FROM {table} AS t) AS v "
            f"WHERE v.copy > 1 OR NOT EXISTS (SELECT FROM {state} AS s WHERE s.gid = v.gid)"
        )
        orphans = conn.execute(delete_at(groups.target, places)).rowcount
    if orphans or groups.is_limited or len(gids) > FEW_ROWS:
        inserted, deleted = ask(conn, _show(groups, None))
    else:
        inserted, deleted = ask(conn, _show(groups, gids)) if gids else (0, 0)
    return inserted, deleted + orphans


def _show_first(conn: Connection, groups: Groups) -> int:
    """Inserts the visible rows of all groups into an empty table."""
    add_partitions_now(conn, groups.target, f"({_output(groups)}) AS o", key_of_output(groups.target, "o"))
    return conn.execute(
        f"INSERT INTO {groups.target.table} ({groups.target.column_list()}) "
        f"SELECT {_typed(groups.target)} FROM ({_output(groups)}) AS o"
    ).rowcount


def _show(groups: Groups, gids: list[int] | None) -> Steps[tuple[int, int]]:
    """Replaces the visible rows of these groups (None: all) if they differ."""
    if groups.target.partition_column is not None:
        among, values = (_EVERY, ()) if gids is None else (_AMONG, (gids,))
        rows = f"({_output(groups, among)}) AS o"
        yield from add_partitions(groups.target, rows, key_of_output(groups.target, "o"), values)
    if gids is None:
        query = Query(groups.target.text("show all", lambda: _show_text(groups, is_all=True)))
    else:
        query = Query(groups.target.text("show", lambda: _show_text(groups, is_all=False)), (gids,))
    ((inserted, deleted),) = yield query
    return inserted, deleted


def _show_text(groups: Groups, *, is_all: bool) -> str:
    target = groups.target
    output = _output(groups, _EVERY if is_all else _AMONG)
    same = f"o.gid = t.{ROW_ID} AND {same_image(_pairs(target))}"
    # Deletes before it inserts: a unique index of the user may contain both rows.
    return (
        f"WITH o AS MATERIALIZED ({output}), "
        f"gone AS (DELETE FROM {target.table} AS t WHERE NOT EXISTS (SELECT FROM o WHERE {same})"
        f"{'' if is_all else f' AND t.{ROW_ID} = ANY ($1::int8[])'} RETURNING 1), "
        f"come AS (INSERT INTO {target.table} ({target.column_list()}) SELECT {_typed(target)} FROM o "
        f"WHERE NOT EXISTS (SELECT FROM {target.table} AS t WHERE {same}) "
        "AND (SELECT count(*) FROM gone) >= 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM come), (SELECT count(*) FROM gone)"
    )


def _pairs(target: Target) -> Iterator[tuple[str, str, int]]:
    """Each column of the computed row o and of the stored row t, with its type."""
    return ((f"o.c{i}", f"t.{quote_ident(c.name)}", c.base) for i, c in enumerate(target.columns))


def _output(groups: Groups, among: str = "") -> str:
    """The visible rows of groups."""
    alive = "live.n > 0" if groups.key_types else "true"
    return groups.output(f"(SELECT live.* FROM {groups.target.state} AS live WHERE {alive}{among}) AS s")


def _typed(target: Target) -> str:
    return ", ".join([*(f"o.c{i}" for i in range(len(target.columns))), "o.gid"])


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


def _folded(column: StateColumn) -> str:
    old, new = f's."{column.name}"', _value(column)
    if column.fold == "add":
        return f"coalesce({old}, 0) + coalesce({new}, 0)"
    if column.fold == "set":
        return new
    extreme = "LEAST" if column.fold == "least" else "GREATEST"
    return f'CASE WHEN d."{column.name}_set" THEN {new} ELSE {extreme}({old}, {new}) END'
