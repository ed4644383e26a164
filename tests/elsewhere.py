"""Several databases, one of which has stream tables over the others. The right answer comes from a database that has a
copy of all their tables, each in a schema named after its database: PostgreSQL evaluates the query as it was typed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pgtrickle.maintain.verify import verify_tables
from pgtrickle.refresh.job import Outcome
from tests.conftest import Database
from tests.line import Line


class Elsewhere:
    """`home` has the stream tables; `others` have tables that they read."""

    def __init__(self, home: Database, line: Line, others: Sequence[Database], scratch: Callable[[], Database]) -> None:
        self.home = home
        self.line = line
        self.others = others
        self._scratch = scratch
        self._queries: dict[str, str] = {}

    def create(self, name: str, query: str, **options: Any) -> list[Outcome]:
        """`{0}`, `{1}` in the query: the names of the other databases."""
        self._queries[name] = query
        text = query.format(*(d.name for d in self.others))
        return self.line.create(name, text, **options)

    def expect(self, name: str, query: str) -> None:
        """Its query from now on."""
        self._queries[name] = query

    def settle(self, most: int = 6) -> None:
        """Turns until nothing moves."""
        for _ in range(most):
            outcomes = self.line.tick()
            for outcome in outcomes:
                assert outcome.error is None, outcome
            if all(o.action == "NO_DATA" for o in outcomes):
                return
        raise AssertionError("it does not get quiet")

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        scratch = self._scratch()
        tables: list[tuple[Database, str, str]] = []
        for number, database in enumerate([*self.others, self.home]):
            is_home = number == len(self.others)
            schema = "public" if is_home else database.name
            if not is_home:
                scratch.sql(f'CREATE SCHEMA "{schema}"')
            for (table,) in database.sql(
                "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') "
                "AND NOT relispartition AND oid NOT IN (SELECT pgt_relid FROM pgtrickle.pgt_stream_tables)"
            ):
                tables.append((database, schema, table))
        for database, schema, table in tables:
            (columns,) = database.sql(
                "SELECT string_agg(format('%%I %%s', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum) "
                "FROM pg_attribute WHERE attrelid = format('public.%%I', %s::text)::regclass AND attnum > 0 "
                "AND NOT attisdropped",
                table,
            )[0]
            scratch.sql(f'CREATE TABLE "{schema}"."{table}" ({columns})')
            rows = database.sql(f'SELECT t::text FROM public."{table}" AS t')
            connection = scratch.connect()
            connection.cursor().executemany(
                f'INSERT INTO "{schema}"."{table}" SELECT (%s::"{schema}"."{table}").*', rows
            )
        query = self._queries[name]
        for number, database in enumerate(self.others):
            query = query.replace(f"{{{number}}}.public.", f'"{database.name}".')
        return sorted(scratch.sql(query), key=repr)

    def check(self, name: str, action: str | None = "DIFFERENTIAL") -> None:
        """Equal to PostgreSQL's answer, and refreshed in the way that it claims."""
        if action is not None:
            assert self.line.last(name)[:2] == (action, "COMPLETED"), self.line.last(name)
        assert self.line.rows(name) == self.expected(name)
        results = verify_tables(self.home.dsn, [name], timeout_seconds=1)
        assert len(results) > 1
        assert all(r.ok for r in results), results
