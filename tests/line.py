"""The whole line in a test: a database, a session of the run loop, Spark. A table is right when it equals its query
both ways and was refreshed in the way that it claims."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import psycopg
from psycopg import sql

from pgtrickle.maintain.oracle import AS_TYPED
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.reasons import Reason, stored
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.refresh.job import Outcome
from pgtrickle.settings import Settings, Sources

# What shows one of several equal values, whichever comes first.
_ONE_OF_EQUAL = re.compile(
    r"\b(?:DISTINCT|GROUP\s+BY|UNION(?!\s+ALL)|INTERSECT|EXCEPT|OVER|LIMIT|FETCH|max|min|json\w*)\b", re.IGNORECASE
)
_FLOATS = ("real", "double precision")


def as_author(conn: psycopg.Connection[Any], name: str) -> list[tuple[Any, ...]]:
    """Rows in which a stream table differs from its query as it was typed: understood by a plain session along the
    author's search_path, with the author's settings, and then evaluated as PostgreSQL evaluates a view under the path
    of REFRESH MATERIALIZED VIEW. Sessions and texts of pgtrickle have no part in it."""
    schema, _, table = name.rpartition(".")
    query, kept, columns = conn.execute(
        "SELECT original_query, session_settings, output_columns FROM pgtrickle.pgt_stream_tables "
        "WHERE pgt_schema = %s AND pgt_name = %s",
        (schema or "public", table),
    ).fetchone() or ("", {}, [])
    shown = [(sql.Identifier(c["name"]).as_string(conn), c["type"]) for c in columns]
    stored = f"SELECT {', '.join(n for n, _ in shown)} FROM {sql.Identifier(schema or 'public', table).as_string(conn)}"
    is_text = not _ONE_OF_EQUAL.search(query)
    with conn.transaction(force_rollback=True):
        for setting, value in kept.items():
            conn.execute("SELECT set_config(%s, %s, true)", (setting, value))
        conn.execute(f"CREATE TEMPORARY VIEW __as_author AS {query}")
        conn.execute("SET LOCAL search_path = pg_catalog, pg_temp")
        for as_text in [True] if is_text else [False, True]:
            listed = ", ".join(_shown(n, t, as_text=as_text) for n, t in shown)
            sides = [f"SELECT {listed} FROM ({side}) AS q" for side in ("TABLE pg_temp.__as_author", stored)]
            try:
                with conn.transaction():
                    return conn.execute(
                        f"SELECT 'missing', * FROM (({sides[0]}) EXCEPT ALL ({sides[1]})) AS m UNION ALL "
                        f"SELECT 'extra', * FROM (({sides[1]}) EXCEPT ALL ({sides[0]})) AS e LIMIT 20"
                    ).fetchall()
            except psycopg.errors.UndefinedFunction:
                continue  # a type without equality
    raise AssertionError("nothing was compared")


def _shown(name: str, type_: str, *, as_text: bool) -> str:
    if type_ in _FLOATS:
        special = f"{name} IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN {special} THEN {name}::text ELSE to_char({name}::float8 + 0, '9.99999999999EEEE') END"
    return f"{name}::text" if as_text else name


def sources_of(settings: Settings) -> Sources:
    """Flags that make these settings, whatever a database says."""
    return Sources(flags={f.name: getattr(settings, f.name) for f in fields(settings)})


class Line:
    """Turns happen when the test asks for them, so that it decides what each one sees."""

    def __init__(
        self, dsn: str, engine: SparkEngine, settings: Settings | None = None, origins: OriginSessions | None = None
    ) -> None:
        self.dsn = dsn
        self.plane = LocalControlPlane(
            "test", dsn, engine, sources_of(settings) if settings is not None else Sources(), origins
        )
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)

    def close(self) -> None:
        self.plane.close()
        self.conn.close()

    def sql(self, text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = self.conn.execute(text, params or None)
        while cursor.nextset():
            pass
        return cursor.fetchall() if cursor.description is not None else []

    def edit_catalog(self, text: str) -> None:
        """Writes to the catalog past the functions that tell the scheduler; it reads all of it again."""
        self.sql(text)
        self.sql("INSERT INTO pgtrickle.pgt_events (what) VALUES ('install')")

    def create(self, name: str, query: str, *, mode: str = "AUTO", schedule: str = "calculated") -> list[Outcome]:
        self.sql("SELECT pgtrickle.create_stream_table(%s, %s, %s, %s)", name, query, schedule, mode)
        return self.tick()

    def tick(self, *, include_unchanged: bool = False, changes_seen_at: float = 0.0) -> list[Outcome]:
        return self.plane.tick(include_unchanged=include_unchanged, changes_seen_at=changes_seen_at)

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

    def reason(self, name: str) -> Reason | None:
        """Why the latest refresh of a table of schema public did what it did."""
        rows = self.sql(
            "SELECT h.reason_code, h.reason_params FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables AS s USING (pgt_id) "
            "WHERE s.pgt_name = %s AND s.pgt_schema = 'public' ORDER BY h.refresh_id DESC LIMIT 1",
            name,
        )
        return stored(*rows[0])

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

    def equal(self, name: str) -> str:
        """With what it was compared."""
        (result,) = verify_tables(self.dsn, [name], timeout_seconds=1)
        assert result.ok, result
        # What verify cannot be wrong about together with refreshes: the text as it was typed, in a session of the test.
        if result.how == "quiet" and result.against == AS_TYPED:
            assert not as_author(self.conn, result.name), (result, as_author(self.conn, result.name))
        return result.against

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The visible rows without the hidden column, sorted."""
        columns = self.sql(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname !~ '^__pgt_'",
            name,
        )[0][0]
        return sorted(self.sql(f"SELECT {columns} FROM {name}"), key=repr)
