"""Staging of large deltas and loads: a temporary table filled by COPY, analysed, gone at commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pgtrickle.db.copy import write_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

STAGE = "pg_temp.__pgt_stage"


def stage_arrow(conn: Connection, columns: Sequence[tuple[str, str]], tables: Iterable[pa.Table]) -> str:
    """`columns`: (name, SQL type) in the order of the Arrow tables' columns. Returns the staging table's name."""
    defined = ", ".join(f'"{name}" {type_}' for name, type_ in columns)
    conn.execute(f"CREATE TEMP TABLE __pgt_stage ({defined}) ON COMMIT DROP")
    for table in tables:
        write_arrow(conn, STAGE, table)
    conn.execute(f"ANALYZE {STAGE}")  # without it a join with the target is planned as if the stage were empty
    return STAGE


def stage_columns(conn: Connection, columns: Sequence[tuple[str, str]], values: Sequence[Sequence[Any]]) -> str:
    """The same for a delta in plain Python columns."""
    import pyarrow as pa

    arrow = {"int8": pa.int64(), "bool": pa.bool_(), "text": pa.string()}
    arrays = [pa.array(v, arrow[type_]) for v, (_, type_) in zip(values, columns, strict=True)]
    return stage_arrow(conn, columns, [pa.Table.from_arrays(arrays, names=[name for name, _ in columns])])
