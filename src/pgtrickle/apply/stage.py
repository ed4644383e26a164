"""Staging of large deltas and loads: a table filled by COPY, analysed, gone at commit.

Temporary, unless executors fill it: no other session sees a temporary table. Theirs stand in pgtrickle_changes, a
parent and a child per task, under a name that no other load uses. What a crash leaves of them is swept.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import translated
from pgtrickle.db.copy import write_arrow
from pgtrickle.db.statements import statement
from pgtrickle.errors import TransientError

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

STAGE = "__pgt_stage"
LOCK_TIMEOUT_MS = 100


def stage_arrow(
    conn: Connection, columns: Sequence[tuple[str, str]], tables: Iterable[pa.Table], *, pgt_id: int | None = None
) -> str:
    """`columns`: (name, SQL type) in the order of the Arrow tables' columns. Returns the staging table's name.

    With `pgt_id` it is there until the transaction ends, for loads that are all staged before the first is applied;
    without, until the next one is staged.
    """
    name = STAGE if pgt_id is None else f"{STAGE}_{pgt_id}"
    stage = f"pg_temp.{name}"
    defined = ", ".join(f'"{column}" {type_}' for column, type_ in columns)
    conn.execute(f"DROP TABLE IF EXISTS {stage}")
    conn.execute(f"CREATE TEMP TABLE {name} ({defined}) ON COMMIT DROP")
    for table in tables:
        write_arrow(conn, stage, table)
    return analysed(conn, stage)


def stage_columns(conn: Connection, columns: Sequence[tuple[str, str]], values: Sequence[Sequence[Any]]) -> str:
    """The same for a delta in plain Python columns."""
    import pyarrow as pa

    arrow = {"int8": pa.int64(), "bool": pa.bool_(), "text": pa.string()}
    arrays = [pa.array(v, arrow[type_]) for v, (_, type_) in zip(values, columns, strict=True)]
    return stage_arrow(conn, columns, [pa.Table.from_arrays(arrays, names=[name for name, _ in columns])])


def analysed(conn: Connection, stage: str) -> str:
    conn.execute(f"ANALYZE {stage}")  # without it a join with the target is planned as if the stage were empty
    return stage


def claim_stage(conn: Connection, pgt_id: int) -> str:
    """A name for a staging table that executors make and fill; not swept while the transaction of `conn` lasts."""
    conn.execute("SELECT pg_catalog.pg_advisory_xact_lock_shared(pg_catalog.hashtextextended(%s, 0))", (_key(pgt_id),))
    return f"pgtrickle_changes.stage_{pgt_id}_{secrets.token_hex(4)}"


def drop_stage(conn: Connection, stage: str) -> None:
    if not stage.startswith("pg_temp."):
        conn.execute(f"DROP TABLE {stage} CASCADE")


def sweep_stages(conn: Connection) -> list[str]:
    """Drops the staging tables of loads that run no more; returns their names. `conn` must not be in a transaction."""
    with translated(), conn.transaction():
        found = conn.execute(statement("stages")).fetchall()
    swept: list[str] = []
    for pgt_id, rows in groupby(found, key=lambda row: row[0]):
        try:
            with translated(), conn.transaction():
                swept += _sweep(conn, pgt_id, [name for _, name in rows])
        except TransientError:
            continue  # somebody looks at one of them
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
