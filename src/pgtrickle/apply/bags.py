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
    source = "(SELECT * FROM unnest(%s::int8[], %s::int8[], %s::text[]) AS d(h, n, k))"
    weights = columns[1]
    deleted = inserted = 0
    if any(n < 0 for n in weights):
        deleted = _delete(conn, target, source, columns, -sum(n for n in weights if n < 0))
    if any(n > 0 for n in weights):
        inserted = _insert(conn, target, source, columns)
    return inserted, deleted


def apply_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """A large delta, staged in a table with DELTA_COLUMNS."""
    row = conn.execute(f"SELECT coalesce(-sum(n) FILTER (WHERE n < 0), 0)::int8 FROM {stage}").fetchone()
    expected = int(row[0]) if row else 0
    deleted = _delete(conn, target, stage, None, expected) if expected else 0
    return _insert(conn, target, stage, None), deleted


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


def _delete(
    conn: Connection, target: Target, source: str, params: Sequence[Sequence[Any]] | None, expected: int
) -> int:
    sql = (
        f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM \x00 AS d WHERE d.n < 0), "
        f"victims AS (SELECT t.ctid AS place, d.n, row_number() OVER (PARTITION BY d.ord) AS copy "
        f"FROM d JOIN {target.table} AS t ON t.__pgt_row_id = d.h AND {target.encoded('t')} = d.k) "
        f"DELETE FROM {target.table} WHERE ctid = ANY (ARRAY(SELECT place FROM victims WHERE copy <= -n))"
    )
    deleted = _execute(conn, sql, source, params)
    if deleted != expected:
        raise InvariantError(
            f"{expected} rows were to leave {target.schema}.{target.name} but {deleted} were found",
            hint="was the stream table changed by hand? It is loaded anew",
        )
    return deleted


def _insert(conn: Connection, target: Target, source: str, params: Sequence[Sequence[Any]] | None) -> int:
    sql = (
        f"INSERT INTO {target.table} ({target.column_list()}) SELECT {target.decoded('d.a')}d.h "
        f"FROM (SELECT s.h, s.n, s.k::text[] AS a FROM \x00 AS s WHERE s.n > 0) AS d, generate_series(1, d.n)"
    )
    return _execute(conn, sql, source, params)


def _execute(conn: Connection, sql: str, source: str, params: Sequence[Sequence[Any]] | None) -> int:
    """`sql` with the delta's place filled in; names in it may hold percent signs."""
    text = sql if params is None else escape(sql)
    return conn.execute(text.replace("\x00", source), params).rowcount
