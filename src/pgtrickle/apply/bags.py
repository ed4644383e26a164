"""Bags of rows: weight n is n copies. A row to delete is found by its identity, a hash (in a mirror by its key, if it
has one), and confirmed by its whole text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.indexes import ROW_ID, index_rows
from pgtrickle.apply.partitions import (
    add_partitions,
    add_partitions_now,
    delete_at,
    key_of_array,
    key_of_output,
    place_of,
    same_partition,
)
from pgtrickle.apply.stage import stage_columns, table_of, use_memory
from pgtrickle.apply.target import COLLATED, TEXT_DECIDES, Target, is_empty
from pgtrickle.db.roundtrip import Query, Steps
from pgtrickle.errors import InvariantError
from pgtrickle.model.catalog import Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import as_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# (name, type) of a delta: weight, row
DELTA_COLUMNS = (("n", "int8"), ("k", "text"))
# of a load that passes through the driver: each row
LOAD_COLUMNS = (("k", "text"),)
# The array of a row is built once; merged into the outer query, the subquery would build it for each column.
_ONCE = "OFFSET 0"


@dataclass(frozen=True, slots=True)
class BagDelta:
    """Inserted and deleted rows, as texts. Small deltas of a mirror are not netted: a row may occur more than once,
    with weights that cancel out."""

    weights: Sequence[int]
    rows: Sequence[str]

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self) -> list[Sequence[Any]]:
        """In the order of DELTA_COLUMNS."""
        return [self.weights, self.rows]


def apply_arrays(target: Target, delta: BagDelta) -> Steps[tuple[int, int]]:
    """Applies a small delta, as array parameters. The statement nets that of a mirror. Returns rows inserted and
    deleted."""
    inserted_keys = "unnest($1::int8[], $2::text[]) AS d(n, k), LATERAL (SELECT d.k::text[] AS a) AS r WHERE d.n > 0"
    yield from add_partitions(target, inserted_keys, key_of_array(target, "r.a"), delta.columns())
    text = target.text("bag", lambda: _arrays_text(target))
    ((inserted, deleted, expected),) = yield Query(text, delta.columns())
    _check(target, deleted, expected)
    return inserted, deleted


def _arrays_text(target: Target) -> str:
    rows = "SELECT d.n, d.k FROM unnest($1::int8[], $2::text[]) AS d(n, k)"
    if target.is_mirror:
        rows = (
            'SELECT sum(s.n)::int8 AS n, s.k COLLATE "C" AS k FROM unnest($1::int8[], $2::text[]) AS s(n, k) '
            'GROUP BY s.k COLLATE "C" HAVING sum(s.n) <> 0'
        )
    return _apply_text(target, _identified(target, f"({rows})"))


def apply_difference(conn: Connection, target: Target, difference: str) -> tuple[int, int]:
    """Applies the rows of a query (identity, weight, text). Deleted rows have their stored identity. The partitions of
    inserted rows exist."""
    row = conn.execute(
        _apply_text(target, f"SELECT d.h, d.n, d.k, d.k::text[] AS a FROM ({difference}) AS d")
    ).fetchone()
    assert row is not None
    inserted, deleted, expected = row
    _check(target, deleted, expected)
    return inserted, deleted


def _apply_text(target: Target, rows: str) -> str:
    """`rows`: a query for (h, n, k, a)."""
    # Deletes before it inserts: a unique index of the user may contain both rows.
    return (
        f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM ({rows}) AS d), "
        f"gone AS ({_delete(target, 'd')} RETURNING 1), "
        f"come AS ({_insert(target, 'd')} WHERE (SELECT count(*) FROM gone) >= 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM come), (SELECT count(*) FROM gone), "
        "(SELECT coalesce(-sum(d.n), 0)::int8 FROM d WHERE d.n < 0)"
    )


def _identified(target: Target, rows: str, which: str = "") -> str:
    """A query for (h, n, k, a) of a relation (n, k): rows with identity and the array of their texts."""
    return (
        f"SELECT {target.identity_of_array('i.a', 'i.k')} AS h, i.n, i.k, i.a "
        f"FROM (SELECT r.n, r.k, r.k::text[] AS a FROM {rows} AS r{which} {_ONCE}) AS i"
    )


def apply_staged(conn: Connection, target: Target, delta: BagDelta) -> tuple[int, int]:
    """Applies a large netted delta, through a staging table."""
    return _apply_table(conn, target, stage_columns(conn, DELTA_COLUMNS, delta.columns()))


def apply_relation(conn: Connection, target: Target, relation: str, *, is_small: bool) -> tuple[int, int]:
    """Applies a netted delta that another engine has staged: a relation with the columns n and k."""
    if not is_small:
        return _apply_table(conn, target, table_of(conn, "__pgt_delta", f"SELECT d.n, d.k FROM {relation} AS d"))
    _add_partitions(conn, target, relation)
    row = conn.execute(_apply_text(target, _identified(target, relation))).fetchone()
    assert row is not None
    inserted, deleted, expected = row
    _check(target, deleted, expected)
    return inserted, deleted


def _apply_table(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    expected = _expected(conn, stage)
    _add_partitions(conn, target, stage)
    if expected:
        _delete_all(conn, target, _identified(target, stage, " WHERE r.n < 0"), expected)
    return conn.execute(_insert(target, f"({_identified(target, stage, ' WHERE r.n > 0')})")).rowcount, expected


def _add_partitions(conn: Connection, target: Target, delta: str) -> None:
    rows = f"(SELECT d.k::text[] AS a FROM {delta} AS d WHERE d.n > 0 {_ONCE}) AS r"
    add_partitions_now(conn, target, rows, key_of_array(target, "r.a"))


def _expected(conn: Connection, delta: str) -> int:
    """The number of rows to delete."""
    row = conn.execute(f"SELECT coalesce(-sum(d.n), 0)::int8 FROM {delta} AS d WHERE d.n < 0").fetchone()
    return int(row[0]) if row else 0


def _delete_all(conn: Connection, target: Target, rows: str, expected: int) -> None:
    d = f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM ({rows}) AS d) "
    _check(target, conn.execute(d + _delete(target, "d")).rowcount, expected)


def identified(target: Target, relation: str) -> str:
    """The rows of a relation with the columns c0, c1, ... of the target (a table, or a subquery in parentheses), with
    their identity as column h: the content that `replace_rows` writes."""
    values = [f"r.c{i}" for i in range(len(target.columns))]
    return f"(SELECT r.*, {target.identity(values, target.encoded_content('r'))} AS h FROM {relation} AS r)"


def replace_rows(conn: Connection, target: Target, content: str) -> tuple[int, int]:
    """Makes the table equal to a content (see `identified`), by difference: readers and consumers see a delta.

    A stored row with another identity than its new one is deleted and inserted.
    """
    if is_empty(conn, target.table):
        add_partitions_now(conn, target, f"{content} AS n", key_of_output(target, "n"))
        columns = "".join(f"n.c{i}, " for i in range(len(target.columns)))
        inserted = conn.execute(
            f"INSERT INTO {target.table} ({target.column_list()}) SELECT {columns}n.h FROM {content} AS n"
        ).rowcount
        index_rows(conn, target)
        # Without it the next refresh would scan the table to find rows.
        conn.execute(f"ANALYZE {target.table}")
        return inserted, 0
    index_rows(conn, target)
    if content.startswith("("):
        content = table_of(conn, "__pgt_content", f"SELECT * FROM {content} AS n")  # because it is read three times
    use_memory(conn)
    difference = table_of(conn, "__pgt_difference", _difference(target, content))
    rows = f"SELECT d.h, d.n, d.k, d.k::text[] AS a FROM {difference} AS d WHERE d.n"
    expected = _expected(conn, difference)
    _add_partitions(conn, target, difference)
    if expected:
        _delete_all(conn, target, f"{rows} < 0", expected)
    return conn.execute(_insert(target, f"({rows} > 0 {_ONCE})")).rowcount, expected


def _difference(target: Target, content: str) -> str:
    """A query for (h, n, k): the rows in which content and target differ, with weight and text.

    Rows are grouped by their values if these are equal exactly when their texts are, which is faster, else by texts.
    """
    count = len(target.columns)
    new = [_grouping_expression(f"n.c{i}", c) for i, c in enumerate(target.columns)]
    old = [_grouping_expression(f"t.{quote_ident(c.name)}", c) for c in target.columns]
    names = ["h", *(f"c{i}" for i in range(count))]
    grouped = ", ".join(f"b.{name}" for name in names)
    shown = [as_text(f"g.c{i}", c.base) if _is_grouped_by_value(c) else f"g.c{i}" for i, c in enumerate(target.columns)]
    return (
        f'SELECT g.h, g.n, ARRAY[{", ".join(shown)}]::text[]::text COLLATE "C" AS k FROM ('
        f"SELECT {grouped}, sum(b.w)::int8 AS n FROM (SELECT {', '.join(['n.h', *new, '1'])} FROM {content} AS n "
        f"UNION ALL SELECT {', '.join([f't.{ROW_ID}', *old, '-1'])} FROM {target.table} AS t"
        f") AS b({', '.join(names)}, w) "
        f"GROUP BY {grouped} HAVING sum(b.w) <> 0) AS g"
    )


def _is_grouped_by_value(column: Column) -> bool:
    return column.base in TEXT_DECIDES


def _grouping_expression(value: str, column: Column) -> str:
    """The expression to group by: a value, or its text. No collation makes different texts equal."""
    grouped = value if _is_grouped_by_value(column) else as_text(value, column.base)
    return f'{grouped} COLLATE "C"' if column.base in COLLATED or not _is_grouped_by_value(column) else grouped


def _delete(target: Target, d: str) -> str:
    """Deletes -n copies of each row of `d` (h, n, k, a, ord) with a negative weight n."""
    # IS TRUE prevents a join by text, which would compute the text of every row.
    places = (
        f"SELECT v.* FROM (SELECT {place_of(target, 't')}, d.n, row_number() OVER (PARTITION BY d.ord) AS copy "
        f"FROM {d} AS d JOIN {target.table} AS t ON {target.match_condition('t', 'd')} "
        f"AND ({target.encoded('t')} = d.k) IS TRUE AND {same_partition(target, 't', key_of_array(target, 'd.a'))} "
        "WHERE d.n < 0) AS v WHERE v.copy <= -v.n"
    )
    return delete_at(target, places)


def _insert(target: Target, d: str) -> str:
    """`d` has (h, n, a)."""
    return (
        f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
        f"FROM {d} AS d, generate_series(1, d.n)"
    )


def _check(target: Target, deleted: int, expected: int) -> None:
    if deleted != expected:
        raise InvariantError(
            f"{expected} rows had to be deleted from {target.schema}.{target.name}, but {deleted} were found",
            hint="the stream table may have been changed by hand; it is loaded again",
        )
