"""COPY in the binary format: what Arrow has is what PostgreSQL stores."""

from __future__ import annotations

import math
import struct
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from pgtrickle.db.binary_copy import TYPES, encoded, write_binary
from pgtrickle.db.connect import connect
from pgtrickle.db.handover import hand_over
from tests.conftest import Database

ARROW = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "text": pa.string(),
    "date": pa.int32(),
    "timestamp": pa.int64(),
    "timestamptz": pa.int64(),
}
EDGES: dict[str, list[Any]] = {
    "bool": [True, False],
    "int2": [0, -32768, 32767],
    "int4": [0, -(2**31), 2**31 - 1],
    "int8": [0, -(2**63), 2**63 - 1],
    "float4": [0.0, -0.0, 1.5, math.inf, -math.inf, math.nan],
    "float8": [0.0, -0.0, 0.1, 1e308, 5e-324, math.inf, -math.inf, math.nan],
    "text": ["", "x", 'it\'s {"odd"}', "tab\there\nline\\", "žluťoučký 🐎", "x" * 100_000, "NULL", "\\N"],
    "date": [0, -1, 8765, 2**31 - 1, -(2**31)],
    "timestamp": [0, -1, 123_456_789_012_345, 2**63 - 1, -(2**63)],
    "timestamptz": [0, -1, 123_456_789_012_345, 2**63 - 1, -(2**63)],
}
# The value as its number or text, by PostgreSQL's own functions for sending values.
SENT = {type_: f"{type_}send" for type_ in TYPES} | {
    "date": "date_send",
    "timestamp": "timestamp_send",
    "timestamptz": "timestamptz_send",
}
PACKED = {"bool": "?", "int2": ">h", "int4": ">i", "int8": ">q", "float4": ">f", "float8": ">d", "date": ">i"}
PACKED |= {"timestamp": ">q", "timestamptz": ">q"}


def packed(type_: str, value: Any) -> bytes | None:
    if value is None:
        return None
    return value.encode() if type_ == "text" else struct.pack(PACKED[type_], value)


@pytest.mark.parametrize("seed", range(3))
def test_all_types_arrive_as_they_are(database: Database, seed: int) -> None:
    random = Random(seed)
    types = [*sorted(TYPES), *random.choices(sorted(TYPES), k=5)]
    rows = [[random.choice([None, *EDGES[t]]) for t in types] for _ in range(500)]
    rows += [[None] * len(types), [EDGES[t][0] for t in types]]
    database.sql(
        f"CREATE TABLE b ({', '.join(f'c{i} {t}' for i, t in enumerate(types))}, n int8 GENERATED ALWAYS AS IDENTITY)"
    )
    table = pa.table(
        [pa.array([row[i] for row in rows], ARROW[t]) for i, t in enumerate(types)],
        [f"c{i}" for i in range(len(types))],
    )
    # Slices of arrays, whose first value is not that of their buffers; and an empty one.
    batches = [
        table.slice(0, 0).combine_chunks().to_batches(),
        table.slice(0, 7).to_batches(),
        table.slice(7).to_batches(max_chunksize=100),
    ]
    columns = ", ".join(f"c{i}" for i in range(len(types)))
    with connect(database.dsn, role="test") as conn:
        write_binary(conn, f"public.b ({columns})", types, [batch for each in batches for batch in each])
        conn.commit()
    shown = ", ".join(f"{SENT[t]}(c{i})" for i, t in enumerate(types))
    found = database.sql(f"SELECT {shown} FROM b ORDER BY n")
    expected = [tuple(packed(t, v) for t, v in zip(types, row, strict=True)) for row in rows]
    assert found == expected


def test_values_beyond_the_range_of_a_type_are_refused(database: Database) -> None:
    """As PostgreSQL refuses their texts."""
    import psycopg

    database.sql("CREATE TABLE b (d date)")
    batch = pa.record_batch([pa.array([2**31 - 2], pa.int32())], ["d"])
    with connect(database.dsn, role="test") as conn, pytest.raises(psycopg.Error, match="date out of range"):
        write_binary(conn, "public.b", ["date"], [batch])


def test_batch_without_rows_is_empty() -> None:
    assert encoded(pa.record_batch([pa.array([], pa.string())], ["c"]), ["text"]) == b""


def test_rows_that_the_control_plane_writes_have_the_same_types(installed: Database) -> None:
    from pgtrickle.pipeline.engine.bulk import write_rows

    types = sorted(TYPES)
    rows = [tuple(EDGES[t][0] for t in types), tuple(None for _ in types), tuple(EDGES[t][-1] for t in types)]
    stage = "pgtrickle_changes.stage_1_test"
    with connect(installed.dsn, role="test") as conn:
        write_rows(rows, hand_over(conn, snapshot=False), [(f"s{i}", t) for i, t in enumerate(types)], stage)
    shown = ", ".join(f"{SENT[t]}(s{i})" for i, t in enumerate(types))
    found = installed.sql(f"SELECT {shown} FROM {stage}")
    assert found == [tuple(packed(t, v) for t, v in zip(types, row, strict=True)) for row in rows]
