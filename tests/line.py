"""The whole line in a test: a database, a session of the run loop, Spark. A table is right when it equals its query
both ways and was refreshed in the way that it claims."""

from __future__ import annotations

from typing import Any

import psycopg

from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.job import Outcome
from pgtrickle.runtime.origins import Origins
from pgtrickle.runtime.turn import Turns
from pgtrickle.runtime.verify import verify_tables
from pgtrickle.settings import Settings


class Line:
    """Turns happen when the test asks for them, so that it decides what each one sees."""

    def __init__(
        self, dsn: str, engine: SparkEngine, settings: Settings | None = None, origins: Origins | None = None
    ) -> None:
        self.dsn = dsn
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)
        self.session = Turns("test", dsn, engine, settings or Settings(), origins)

    def close(self) -> None:
        self.session.close()
        self.conn.close()

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, params or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []

    def create(self, name: str, query: str, *, mode: str = "AUTO", schedule: str = "calculated") -> list[Outcome]:
        self.sql("SELECT pgtrickle.create_stream_table(%s, %s, %s, %s)", name, query, schedule, mode)
        return self.tick()

    def tick(self, noticed: float = 0.0) -> list[Outcome]:
        return self.session.tick(noticed)

    def last(self, name: str) -> tuple[str, str, str | None]:
        """Action, status and reason (or error) of the latest refresh."""
        schema, _, table = name.rpartition(".")
        rows = self.sql(
            "SELECT h.action, h.status, coalesce(h.reason, h.error_message) FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) "
            "WHERE s.pgt_name = %s AND s.pgt_schema = %s ORDER BY h.refresh_id DESC LIMIT 1",
            table,
            schema or "public",
        )
        action, status, reason = rows[0]
        return action, status, reason

    def refreshes(self, name: str) -> int:
        rows = self.sql(
            "SELECT count(*) FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables USING (pgt_id) "
            "WHERE pgt_name = %s AND h.status = 'COMPLETED'",
            name,
        )
        return int(rows[0][0])

    def check(self, name: str, action: str = "DIFFERENTIAL") -> None:
        """The table equals its query at its cut, and its latest refresh was `action` and worked."""
        assert self.last(name)[:2] == (action, "COMPLETED"), self.last(name)
        self.equal(name)

    def equal(self, name: str) -> None:
        (result,) = verify_tables(self.dsn, [name], timeout_seconds=1)
        assert result.ok, result

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The visible rows without the hidden column, sorted."""
        columns = self.sql(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname !~ '^__pgt_'",
            name,
        )[0][0]
        return sorted(self.sql(f"SELECT {columns} FROM {name}"), key=repr)
