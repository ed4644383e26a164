"""Rows without a key: weight n is n rows. A row to delete is found by its identity and confirmed by its whole text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.target import Target, escape
from pgtrickle.errors import InvariantError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# (name, type) of a delta: identity, weight, row
DELTA_COLUMNS = (("h", "int8"), ("n", "int8"), ("k", "text"))
# and of a load: each row with its identity
LOAD_COLUMNS = (("k", "text"), ("h", "int8"))


def apply_arrays(conn: Connection, target: Target, columns: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """A small delta, as arrays in the order of DELTA_COLUMNS. Returns rows inserted and deleted."""
    expected = -sum(n for n in columns[1] if n < 0)
    # Rows come only when others have gone: a unique index of the user's may know both.
    sql = (
        f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM unnest(\x00) AS d(h, n, k)), "
        f"gone AS ({_delete(target, 'd')} RETURNING 1), "
        f"come AS ({_insert(target, 'd')} WHERE (SELECT count(*) FROM gone) >= 0 RETURNING 1) "
        "SELECT (SELECT count(*) FROM come), (SELECT count(*) FROM gone)"
    )
    row = conn.execute(escape(sql).replace("\x00", "%s::int8[], %s::int8[], %s::text[]"), columns).fetchone()
    if row is None:
        raise InvariantError("the apply statement returned nothing")
    _check(target, row[1], expected)
    return row[0], row[1]


def apply_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """A large delta, staged in a table with DELTA_COLUMNS."""
    row = conn.execute(f"SELECT coalesce(-sum(n) FILTER (WHERE n < 0), 0)::int8 FROM {stage}").fetchone()
    expected = int(row[0]) if row else 0
    if expected:
        d = f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM {stage} AS d WHERE d.n < 0) "
        _check(target, conn.execute(d + _delete(target, "d")).rowcount, expected)
    return conn.execute(_insert(target, stage)).rowcount, expected


def replace_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """Makes the table equal to the staged rows (LOAD_COLUMNS) by difference: readers and consumers see a delta."""
    row = conn.execute(f"SELECT EXISTS (SELECT FROM {target.table})").fetchone()
    if not (row and row[0]):
        inserted = conn.execute(
            f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
            f"FROM (SELECT s.h, s.k::text[] AS a FROM {stage} AS s) AS d"
        ).rowcount
        # Without it the next refresh would look its rows up by reading all of them.
        conn.execute(f"ANALYZE {target.table}")
        return inserted, 0
    conn.execute("DROP TABLE IF EXISTS pg_temp.__pgt_difference")  # of another table of the same transaction
    conn.execute('CREATE TEMP TABLE __pgt_difference (h int8, n int8, k text COLLATE "C") ON COMMIT DROP')
    conn.execute(
        f"INSERT INTO __pgt_difference SELECT b.h, sum(b.w), b.k FROM ("
        f'SELECT s.h, s.k COLLATE "C", 1 FROM {stage} AS s '
        f"UNION ALL SELECT t.__pgt_row_id, {target.encoded('t')}, -1 FROM {target.table} AS t"
        ") AS b(h, k, w) GROUP BY b.h, b.k HAVING sum(b.w) <> 0"
    )
    conn.execute("ANALYZE __pgt_difference")
    return apply_staged(conn, target, "__pgt_difference")


def _delete(target: Target, d: str) -> str:
    """Of rows of `d` with a negative weight, as many as that. `d` has (h, n, k, ord)."""
    return (
        f"DELETE FROM {target.table} WHERE ctid = ANY (ARRAY(SELECT v.place FROM ("
        f"SELECT t.ctid AS place, d.n, row_number() OVER (PARTITION BY d.ord) AS copy "
        f"FROM {d} AS d JOIN {target.table} AS t ON t.__pgt_row_id = d.h AND {target.encoded('t')} = d.k "
        f"WHERE d.n < 0) AS v WHERE v.copy <= -v.n))"
    )


def _insert(target: Target, d: str) -> str:
    return (
        f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
        f"FROM (SELECT s.h, s.n, s.k::text[] AS a FROM {d} AS s WHERE s.n > 0) AS d, generate_series(1, d.n)"
    )


def _check(target: Target, deleted: int, expected: int) -> None:
    if deleted != expected:
        raise InvariantError(
            f"{expected} rows were to leave {target.schema}.{target.name} but {deleted} were found",
            hint="was the stream table changed by hand? It is loaded anew",
        )
