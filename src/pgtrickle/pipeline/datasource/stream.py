"""The changes of a stream table as a stream: each micro-batch is one window of the change feed.

The offset is the LSN by which the feed identifies a window. Spark writes the end of a batch to its checkpoint before it
reads the batch, and reads it again after a crash; the feed returns the same rows for the same LSN until it is
acknowledged, which happens when Spark has committed the batch. A position of the feed that differs from the checkpoint
(another query has used the subscriber, an old checkpoint was restored) is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.model.identifiers import qualified, quote_literal
from pgtrickle.pipeline.datasource.columns import SparkColumn, find_stream_table, read_rows, require_same
from pgtrickle.pipeline.datasource.options import MAX_BATCH_ROWS, Options

if TYPE_CHECKING:
    import pyarrow as pa

    from pgtrickle.db.connect import Connection

BEGINNING = {"lsn": ""}
_DUPLICATE_OBJECT = "42710"


@dataclass
class FeedWindow(InputPartition):  # type: ignore[misc]
    """The changes that the feed returns with this LSN."""

    lsn: str


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: Options, columns: Sequence[SparkColumn], names: Sequence[str]) -> None:
        self.options = options
        self.columns = columns
        self.names = names
        self.last: str | None = None  # with the trigger availableNow: where the stream ends

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """The feed of a new subscriber begins with all rows."""
        with self.options.session() as conn:
            table = self._table(conn)
            try:
                conn.execute("SELECT pgtrickle.create_subscriber(%s, %s)", (table, self.options.subscriber))
            except Exception as error:
                if getattr(error, "sqlstate", None) != _DUPLICATE_OBJECT:
                    raise
            self._require_position(conn, table, BEGINNING["lsn"])
        return BEGINNING

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self.options.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with self.options.session() as conn:
            row = conn.execute("SELECT pg_catalog.pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            self.last = row[0]

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:  # noqa: N802
        """The end of the window that the feed offers next. Spark has committed everything up to `start`."""
        rows = (
            MAX_BATCH_ROWS if isinstance(limit, ReadAllAvailable) else getattr(limit, "max_rows", self.options.max_rows)
        )
        with self.options.session() as conn:
            table = self._table(conn)
            self._acknowledge(conn, table, start["lsn"])
            self._require_position(conn, table, start["lsn"])
            if self.last is not None and start["lsn"] and _number(start["lsn"]) >= _number(self.last):
                return start
            row = conn.execute(
                statement("next_window"),
                {"table": table, "subscriber": self.options.subscriber, "rows": rows},
            ).fetchone()
        assert row is not None
        return start if row[0] is None else {"lsn": row[0]}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[FeedWindow]:
        return [] if start == end else [FeedWindow(end["lsn"])]

    def read(self, partition: FeedWindow) -> Iterator[pa.RecordBatch]:
        with self.options.session() as conn:
            require_same(conn, self.options.table, self.columns)
            table = self._table(conn)
            count = 0
            shown = [("_lsn", "bigint"), ("_action", "string"), *(column.shown for column in self.columns)]
            for batch in read_rows(conn, self._statement(table), shown):
                lsns = set(batch.column("_lsn").to_pylist())
                if lsns != {_number(partition.lsn)}:
                    raise self._moved(partition.lsn)
                count += len(batch)
                yield batch.select(list(self.names))
            if not count:
                raise self._moved(partition.lsn)

    def commit(self, end: dict[str, str]) -> None:
        with self.options.session() as conn:
            self._acknowledge(conn, self._table(conn), end["lsn"])

    def _table(self, conn: Connection) -> str:
        table = find_stream_table(conn, self.options.table)
        return qualified(table.schema, table.name)

    def _statement(self, table: str) -> str:
        """Values are those of PostgreSQL's types again, and then what Spark takes of them."""
        values = "".join(f", {column.read('r')}" for column in self.columns)
        feed = f"pgtrickle.read_changes({quote_literal(table)}, {quote_literal(self.options.subscriber)})"
        image = """CASE WHEN c.action <> 'reset' THEN c."row" END"""
        return (
            f"SELECT (c.lsn - '0/0'::pg_catalog.pg_lsn)::bigint, c.action{values} FROM {feed} AS c "
            f"CROSS JOIN LATERAL pg_catalog.json_populate_record(NULL::{table}, {image}) AS r"
        )

    def _acknowledge(self, conn: Connection, table: str, lsn: str) -> None:
        if lsn:
            try:
                conn.execute("SELECT pgtrickle.acknowledge_changes(%s, %s, %s)", (table, self.options.subscriber, lsn))
            except Exception as error:
                if getattr(error, "sqlstate", None) != "22023":
                    raise
                raise self._moved(lsn) from None

    def _require_position(self, conn: Connection, table: str, lsn: str) -> None:
        row = conn.execute(
            "SELECT p.lsn::text FROM pgtrickle.subscriber_position(%s, %s) AS p", (table, self.options.subscriber)
        ).fetchone()
        assert row is not None
        if (row[0] or "") != lsn:
            raise self._moved(lsn, row[0])

    def _moved(self, lsn: str, present: Any = None) -> PgtrickleError:
        where = f"the change feed continues after {present}" if present else "the change feed has no such position"
        return ConfigError(
            f"subscriber {self.options.subscriber} of {self.options.table}: this query is at {lsn or 'the beginning'}, "
            f"but {where}",
            hint="another query has used this subscriber, the checkpoint is an old copy, or the columns were changed: "
            "begin with a new checkpoint and a new subscriber",
        )


def _number(lsn: str) -> int:
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)
