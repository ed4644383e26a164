"""Arrow in and out of PostgreSQL by COPY, inside the caller's transaction.

CSV is exact here because every column is sent as integer, boolean or text, because a quoted empty string and an
unquoted NULL differ on both sides, and because Arrow reads and writes it in C++. COPY uses the same driver and the
same transaction (and so the same snapshot) as the refresh.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

BATCH_BYTES = 32 << 20
_BATCH_ROWS = 65536
_BLOCK_BYTES = 1 << 20


def read_batches(
    conn: Connection, query: str, types: Sequence[pa.DataType], *, batch_bytes: int = BATCH_BYTES
) -> Generator[pa.Table, None, None]:
    """The rows of a query (no parameters), with columns named c0, c1, ... of the given Arrow types.

    In tables of about `batch_bytes`, so that a result of any size needs little memory.
    """
    buffer, longest = BytesIO(), 0
    with conn.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        for block in copy:  # the server sends a row per block
            buffer.write(block)
            longest = max(longest, len(block))
            if buffer.tell() >= batch_bytes:
                yield _parsed(buffer, longest, types)
                buffer, longest = BytesIO(), 0
    if buffer.tell():
        yield _parsed(buffer, longest, types)


def _parsed(buffer: BytesIO, longest: int, types: Sequence[pa.DataType]) -> pa.Table:
    from pyarrow import csv

    buffer.seek(0)
    return csv.read_csv(
        buffer,
        # Arrow refuses a row that is longer than its block.
        read_options=csv.ReadOptions(column_names=_names(types), block_size=max(_BLOCK_BYTES, 2 * longest)),
        # A row of one NULL column is an empty line.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(_names(types), types, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


def _names(types: Sequence[pa.DataType]) -> list[str]:
    return [f"c{i}" for i in range(len(types))]


def write_arrow(conn: Connection, target: str, table: pa.Table) -> None:
    """Appends the table's rows to `target`, an SQL table name with its column list."""
    write_batches(conn, target, table.to_batches(max_chunksize=_BATCH_ROWS))


def write_batches(conn: Connection, target: str, batches: Iterable[pa.RecordBatch]) -> None:
    """The same for rows that come in batches, by one COPY."""
    from pyarrow import csv

    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with conn.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
        for batch in batches:
            buffer = BytesIO()
            csv.write_csv(batch, buffer, options)
            copy.write(buffer.getvalue())
