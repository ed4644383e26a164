"""Arrow in and out of PostgreSQL by COPY, inside the caller's transaction.

CSV is exact here because every column travels as integer, boolean or text, because a quoted empty string and an
unquoted NULL differ on both sides, and because Arrow reads and writes it in C++. It keeps bulk work on the one driver
and in the one transaction (and so the one snapshot) that the refresh already has.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

_BATCH_ROWS = 65536
_BLOCK_BYTES = 1 << 20


def read_arrow(conn: Connection, query: str, types: Sequence[pa.DataType]) -> pa.Table:
    """The rows of a query (no parameters), with columns named c0, c1, ... of the given Arrow types."""
    import pyarrow as pa
    from pyarrow import csv

    buffer = BytesIO()
    longest = 0
    with conn.cursor() as cursor, cursor.copy(f"COPY ({query}) TO STDOUT (FORMAT csv)") as copy:
        for block in copy:  # the server sends a row per block
            buffer.write(block)
            longest = max(longest, len(block))
    names = [f"c{i}" for i in range(len(types))]
    if buffer.tell() == 0:
        return pa.schema(list(zip(names, types, strict=True))).empty_table()
    buffer.seek(0)
    return csv.read_csv(
        buffer,
        # Arrow refuses a row that is longer than its block.
        read_options=csv.ReadOptions(column_names=names, block_size=max(_BLOCK_BYTES, 2 * longest)),
        # A row of one NULL column is an empty line.
        parse_options=csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=csv.ConvertOptions(
            column_types=dict(zip(names, types, strict=True)),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


def write_arrow(conn: Connection, target: str, table: pa.Table) -> None:
    """Appends the table's rows to `target`, an SQL table name with its column list."""
    from pyarrow import csv

    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    with conn.cursor() as cursor, cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy:
        for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
            buffer = BytesIO()
            csv.write_csv(batch, buffer, options)
            copy.write(buffer.getvalue())
