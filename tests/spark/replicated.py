"""A database with replicas of its tables. The oracle is the table itself, read by a plain session of PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pgtrickle.db.connect import Connection, begin, connect
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.replica import ReplicaNeed, ReplicaStore, ReplicaVersion
from pgtrickle.replica.roots import Root
from pgtrickle.replica.values import ReplicaColumn
from tests.conftest import Database


class Replicated:
    def __init__(self, database: Database, engine: SparkEngine, root: Root) -> None:
        self.database = database
        self.engine = engine
        self.root = root
        self.store = ReplicaStore(root, engine)
        self.conn: Connection = connect(database.dsn, role="replica", autocommit=True)

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.database.sql(text, *params)

    def need(self, table: str = "t", **given: Any) -> ReplicaNeed:
        ((relid,),) = self.sql("SELECT %s::regclass::oid::int8", table)
        return ReplicaNeed(relid, given.get("attnums"), given.get("computed", ()))

    def ensure(self, table: str = "t", **given: Any) -> ReplicaVersion:
        return self.store.ensure(self.conn, self.need(table, **given))

    def advance(self, table: str = "t") -> ReplicaVersion:
        return self.store.advance(self.conn, self.need(table).relid)

    def rows(self, version: ReplicaVersion) -> list[tuple[Any, ...]]:
        """The table at this moment, from the replica."""
        begin(self.conn, "ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            with self.engine.bulk_session() as spark, self.store.at_cut(spark, self.conn, version) as frame:
                return [tuple(row) for row in frame.collect()]
        finally:
            self.conn.rollback()

    def expected(self, columns: Sequence[ReplicaColumn], table: str = "t") -> list[str]:
        names = dict(
            self.sql("SELECT attnum, quote_ident(attname) FROM pg_attribute WHERE attrelid = %s::regclass", table)
        )
        shown = [in_stored_form(names[c.attnum], c) for c in columns if c.attnum is not None]
        return sorted(repr(tuple(map(plain, row))) for row in self.sql(f"SELECT {', '.join(shown)} FROM {table}"))

    def check(self, version: ReplicaVersion, table: str = "t", *, verify: bool = True) -> None:
        """The replica has the rows of the table now; `verify` says the same."""
        positions = [i for i, c in enumerate(version.columns) if c.attnum is not None]
        found = sorted(repr(tuple(plain(row[i]) for i in positions)) for row in self.rows(version))
        assert found == self.expected(version.columns, table)
        if verify:
            compared = self.store.verify(self.conn, version.id.relid)
            assert (compared.missing, compared.extra) == (0, 0)


def in_stored_form(name: str, column: ReplicaColumn) -> str:
    """SQL of a plain session: the value as pipeline/relational/column_types.py says that it is stored."""
    if column.type == "date":
        finite = f"{name} - DATE '2000-01-01'"
        return f"CASE {name} WHEN 'infinity' THEN 2147483647 WHEN '-infinity' THEN -2147483648 ELSE {finite} END"
    if column.type.startswith("timestamp"):
        micros = f"EXTRACT(EPOCH FROM ({name} - {column.type} '2000-01-01 00:00:00+00')) * 1000000"
        return (
            f"CASE {name} WHEN 'infinity' THEN 9223372036854775807 WHEN '-infinity' THEN -9223372036854775808 "
            f"ELSE ({micros})::int8 END"
        )
    if column.type == "bytea":
        return f"encode({name}, 'hex')"
    if column.type.startswith("character("):
        return f"{name}::text"
    return f"{name}::text" if column.ddl == "string" else name


def plain(value: Any) -> str | None:
    return None if value is None else repr(value) if isinstance(value, float) else str(value)
