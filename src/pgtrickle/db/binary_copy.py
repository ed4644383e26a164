"""Arrow into PostgreSQL by COPY in its binary format: values arrive in the types of their columns, without a text.

A row is the number of its fields (int16), then for each field its length in bytes (int32, -1: NULL) and its value, all
in network byte order. Dates are days and timestamps microseconds since 2000-01-01, as PostgreSQL stores them. The bytes
of a batch are put together by NumPy, column by column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)  # signature, no flags, no extension
_TRAILER = b"\xff\xff"
# Types of columns: of the Arrow array, and of the bytes that are sent.
_FIXED = {
    "bool": ("bool_", "u1"),
    "int2": ("int16", ">i2"),
    "int4": ("int32", ">i4"),
    "int8": ("int64", ">i8"),
    "float4": ("float32", ">f4"),
    "float8": ("float64", ">f8"),
    "date": ("int32", ">i4"),
    "timestamp": ("int64", ">i8"),
    "timestamptz": ("int64", ">i8"),
}
TYPES = frozenset({*_FIXED, "text"})


def write_binary(conn: Connection, table: str, types: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
    """Appends the rows of the batches to a table whose columns have these types (of TYPES), by one COPY."""
    with conn.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN (FORMAT binary)") as copy:
        copy.write(_HEADER)
        for batch in batches:
            copy.write(encoded(batch, types))
        copy.write(_TRAILER)


def encoded(batch: pa.RecordBatch, types: Sequence[str]) -> bytes:
    """The rows of a batch."""
    import numpy as np

    count = batch.num_rows
    fields = [_field(column, type_) for column, type_ in zip(batch.columns, types, strict=True)]
    sizes = np.full(count, 2 + 4 * len(fields), dtype=np.int64)
    for lengths, _, _ in fields:
        sizes += np.maximum(lengths, 0)
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]) if count else 0, dtype=np.uint8)
    at = ends - sizes
    _put(out, at, np.full(count, len(fields), dtype=">i2"))
    at = at + 2
    for lengths, present, values in fields:
        _put(out, at, lengths.astype(">i4"))
        at = at + 4
        if present is None:
            _put_texts(out, at, np.maximum(lengths, 0), values)
        elif present.all():
            _put(out, at, values)
        else:
            _put(out, at[present], values[present])
        at = at + np.maximum(lengths, 0)
    return out.tobytes()


Field = tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any] | None", "np.ndarray[Any, Any]"]


def _field(column: pa.Array, type_: str) -> Field:
    """Lengths of a column's values (-1: NULL); which are present (None: of a text); the values, or bytes of texts."""
    import numpy as np
    import pyarrow as pa

    present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=bool)
    if type_ == "text":
        texts = column.cast(pa.string()).fill_null("")
        offsets = np.frombuffer(texts.buffers()[1], dtype=np.int32, count=len(texts) + 1, offset=4 * texts.offset)
        lengths = np.where(present, np.diff(offsets), -1)
        data = texts.buffers()[2]
        source = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
        return lengths, None, source[offsets[0] : offsets[-1]]
    arrow, sent = _FIXED[type_]
    typed = column.cast(getattr(pa, arrow)()).fill_null(False if type_ == "bool" else 0)
    values = typed.to_numpy(zero_copy_only=False).astype(sent)
    return np.where(present, values.dtype.itemsize, -1), present, values


def _put(out: np.ndarray[Any, Any], at: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> None:
    """Values of one width, each at its position."""
    import numpy as np

    width = values.dtype.itemsize
    parts = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), width)
    for number in range(width):
        out[at + number] = parts[:, number]


def _put_texts(
    out: np.ndarray[Any, Any], at: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any], source: np.ndarray[Any, Any]
) -> None:
    """Texts, whose bytes follow one another in `source`, each at its position."""
    import numpy as np

    begins = np.cumsum(lengths) - lengths
    out[np.repeat(at - begins, lengths) + np.arange(len(source))] = source
