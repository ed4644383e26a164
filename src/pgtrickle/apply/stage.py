"""Staging of large deltas and loads: a table that is filled by COPY, analysed, and dropped at commit.

It is temporary, unless executors fill it (no other session sees a temporary table) or it is filled in a separate
transaction. Then it is in pgtrickle_changes (for executors a parent and a child per task), under a unique name; tidy
drops what a crash leaves.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgtrickle.db.binary_copy import write_binary
from pgtrickle.db.connect import translated
from pgtrickle.db.copy import write_arrow
from pgtrickle.db.statements import statement
from pgtrickle.errors import TransientError

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

STAGE = "__pgt_stage"
LOCK_TIMEOUT_MS = 100
MAX_MEMORY = 256 << 20  # of one join or aggregation


def stage_arrow(
    conn: Connection, columns: Sequence[tuple[str, str]], tables: Iterable[pa.Table], *, pgt_id: int | None = None
) -> str:
    """`columns`: (name, SQL type) in the order of the Arrow tables' columns. Returns the staging table's name.

    With `pgt_id` it exists until the transaction ends, for loads that are all staged before the first is applied;
    without, until the next one is staged.
    """
    stage = _temporary(conn, STAGE if pgt_id is None else f"{STAGE}_{pgt_id}", columns)
    for table in tables:
        write_arrow(conn, stage, table)
    return analysed(conn, stage)


def stage_binary(conn: Connection, columns: Sequence[tuple[str, str]], table: pa.Table, *, pgt_id: int) -> str:
    """The same for values in the form of a binary COPY: dates and timestamps are numbers (`db/binary_copy.py`)."""
    stage = _temporary(conn, f"{STAGE}_{pgt_id}", columns)
    write_binary(conn, stage, [type_ for _, type_ in columns], table.to_batches())
    return analysed(conn, stage)


def _temporary(conn: Connection, name: str, columns: Sequence[tuple[str, str]]) -> str:
    stage = f"pg_temp.{name}"
    defined = ", ".join(f'"{column}" {type_}' for column, type_ in columns)
    conn.execute(f"DROP TABLE IF EXISTS {stage}")
    conn.execute(f"CREATE TEMP TABLE {name} ({defined}) ON COMMIT DROP")
    return stage


def stage_columns(conn: Connection, columns: Sequence[tuple[str, str]], values: Sequence[Sequence[Any]]) -> str:
    """The same for a delta in plain Python columns."""
    import pyarrow as pa

    arrow = {"int8": pa.int64(), "bool": pa.bool_(), "text": pa.string()}
    arrays = [pa.array(v, arrow[type_]) for v, (_, type_) in zip(values, columns, strict=True)]
    return stage_arrow(conn, columns, [pa.Table.from_arrays(arrays, names=[name for name, _ in columns])])


def analysed(conn: Connection, stage: str) -> str:
    conn.execute(f"ANALYZE {stage}")  # otherwise a join with the target is planned as if the table were empty
    return stage


def create_stage(conn: Connection, stage: str, query: str) -> None:
    """Creates an unlogged staging table with the rows of a query. By CREATE TABLE AS, because PostgreSQL evaluates the
    query of an INSERT without parallel workers."""
    is_temporary = stage.startswith("pg_temp.")
    if is_temporary:
        conn.execute(f"DROP TABLE IF EXISTS {stage}")
    kind, end = ("TEMP", " ON COMMIT DROP") if is_temporary else ("UNLOGGED", "")
    conn.execute(f"CREATE {kind} TABLE {stage}{end} AS {query}")


def table_of(conn: Connection, name: str, query: str) -> str:
    """Creates a temporary table with the rows of a query; replaces that of another target in the same transaction."""
    stage = f"pg_temp.{name}"
    create_stage(conn, stage, query)
    return analysed(conn, stage)


def use_memory(conn: Connection) -> None:
    """Raises work_mem to maintenance_work_mem (at most MAX_MEMORY) for the rest of the transaction, because joins and
    aggregations compare all rows of a table."""
    conn.execute(
        "SELECT pg_catalog.set_config('work_mem', (greatest("
        "pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')), "
        f"least(pg_catalog.pg_size_bytes(pg_catalog.current_setting('maintenance_work_mem')), {MAX_MEMORY})"
        ") / 1024)::text || 'kB', true)"
    )


def claim_stage(conn: Connection, pgt_id: int) -> str:
    """A name for a staging table that outlives a transaction; not swept while the transaction of `conn` is open."""
    conn.execute("SELECT pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(%s, 0))", (_key(pgt_id),))
    return f"pgtrickle_changes.stage_{pgt_id}_{secrets.token_hex(4)}"


def drop_stage(conn: Connection, stage: str) -> None:
    if not stage.startswith("pg_temp."):
        conn.execute(f"DROP TABLE {stage} CASCADE")


def sweep_stages(conn: Connection) -> list[str]:
    """Drops the staging tables of loads that have ended; returns their names. `conn` must not be in a transaction."""
    with translated(), conn.transaction():
        stages = conn.execute(statement("stages")).fetchall()
    swept: list[str] = []
    for pgt_id, rows in groupby(stages, key=lambda row: row[0]):
        try:
            with translated(), conn.transaction():
                swept += _sweep(conn, pgt_id, [name for _, name in rows])
        except TransientError:
            continue  # a session reads one of them
    return swept


def _sweep(conn: Connection, pgt_id: int, names: Sequence[str]) -> Sequence[str]:
    conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
    row = conn.execute(
        "SELECT pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))", (_key(pgt_id),)
    ).fetchone()
    if not (row and row[0]):
        return ()
    conn.execute("SET LOCAL client_min_messages = warning")
    for name in names:
        conn.execute(f"DROP TABLE IF EXISTS pgtrickle_changes.{name} CASCADE")
    return names


def _key(pgt_id: int) -> str:
    return f"pgtrickle.stage:{pgt_id}"
