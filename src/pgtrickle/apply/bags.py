"""Rows without a key: weight n is n rows. A row to delete is found by its identity and confirmed column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.target import Target, carried, column_type, quote, unnest
from pgtrickle.errors import InvariantError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def names(target: Target) -> list[str]:
    return ["h", "n", *(f"c{i}" for i in range(len(target.columns)))]


def carriers(target: Target) -> list[str]:
    return ["long", "long", *target.carriers]


def columns(target: Target) -> list[tuple[str, str]]:
    """(name, type) of a staged delta."""
    return list(zip(names(target), map(column_type, carriers(target)), strict=True))


def load_columns(target: Target) -> list[tuple[str, str]]:
    """(name, type) of a staged load: the rows, then their identity."""
    return [*((f"c{i}", column_type(c)) for i, c in enumerate(target.carriers)), ("h", "int8")]


def apply_arrays(conn: Connection, target: Target, columns: Sequence[Sequence[Any]]) -> tuple[int, int]:
    """A small delta, as arrays in the order of `names`. Returns rows inserted and deleted."""
    source = f"(SELECT * FROM {unnest(names(target), carriers(target))})"
    weights = columns[1]
    deleted = inserted = 0
    if any(n < 0 for n in weights):
        deleted = _delete(conn, target, source, columns, -sum(n for n in weights if n < 0))
    if any(n > 0 for n in weights):
        inserted = _insert(conn, target, source, columns)
    return inserted, deleted


def apply_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """A large delta, staged in a table with the columns of `names`."""
    row = conn.execute(f"SELECT coalesce(-sum(n) FILTER (WHERE n < 0), 0)::int8 FROM {stage}").fetchone()
    expected = int(row[0]) if row else 0
    deleted = _delete(conn, target, stage, None, expected) if expected else 0
    return _insert(conn, target, stage, None), deleted


def replace_staged(conn: Connection, target: Target, stage: str) -> tuple[int, int]:
    """Makes the table equal to the staged rows (h, c0, ...) by difference: readers and consumers see a delta."""
    columns = ", ".join(f"c{i}" for i in range(len(target.columns)))
    listed = f", {columns}" if columns else ""
    stored = "".join(
        f", {carried(f't.{quote(c.name)}', k)}" for c, k in zip(target.columns, target.carriers, strict=True)
    )
    if not _has_rows(conn, target):
        inserted = conn.execute(
            f"INSERT INTO {target.table} ({target.column_list()}) SELECT {_row(target)} FROM {stage} AS d"
        ).rowcount
        return inserted, 0
    types = ", ".join(["h int8", "n int8", *(f"c{i} {column_type(k)}" for i, k in enumerate(target.carriers))])
    conn.execute(f"CREATE TEMP TABLE __pgt_difference ({types}) ON COMMIT DROP")
    conn.execute(
        f"INSERT INTO __pgt_difference SELECT h, sum(w){listed} FROM ("
        f"SELECT h{listed}, 1 AS w FROM {stage} UNION ALL SELECT t.__pgt_row_id{stored}, -1 FROM {target.table} AS t"
        f") AS both_sides(h{listed}, w) GROUP BY h{listed} HAVING sum(w) <> 0"
    )
    conn.execute("ANALYZE __pgt_difference")
    return apply_staged(conn, target, "__pgt_difference")


def _has_rows(conn: Connection, target: Target) -> bool:
    row = conn.execute(f"SELECT EXISTS (SELECT FROM {target.table})").fetchone()
    return bool(row and row[0])


def _row(target: Target) -> str:
    typed = target.typed("d")
    return f"{typed}, d.h" if typed else "d.h"


def _delete(
    conn: Connection, target: Target, source: str, params: Sequence[Sequence[Any]] | None, expected: int
) -> int:
    sql = (
        f"WITH d AS MATERIALIZED (SELECT d.*, row_number() OVER () AS ord FROM {source} AS d WHERE d.n < 0), "
        f"victims AS (SELECT t.ctid AS place, d.n, row_number() OVER (PARTITION BY d.ord) AS copy "
        f"FROM d JOIN {target.table} AS t ON t.__pgt_row_id = d.h AND {target.same('t', 'd')}) "
        f"DELETE FROM {target.table} WHERE ctid = ANY (ARRAY(SELECT place FROM victims WHERE copy <= -n))"
    )
    deleted = conn.execute(sql, params).rowcount
    if deleted != expected:
        raise InvariantError(f"{expected} rows were to leave {target.schema}.{target.name} but {deleted} were found")
    return deleted


def _insert(conn: Connection, target: Target, source: str, params: Sequence[Sequence[Any]] | None) -> int:
    sql = (
        f"INSERT INTO {target.table} ({target.column_list()}) "
        f"SELECT {_row(target)} FROM {source} AS d, generate_series(1, d.n) WHERE d.n > 0"
    )
    return conn.execute(sql, params).rowcount
