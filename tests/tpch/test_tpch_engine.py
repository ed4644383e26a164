"""The 22 queries of TPC-H as stream tables with engine => 'spark': loads and deltas, and what the source server sees.

The server is asked with pg_stat_statements: a refresh on Spark names no source table, only change buffers (by
transaction range), the catalog, and what it writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import psycopg
import pytest

from tests.conftest import Database
from tests.line import Line
from tests.tpch.database import CYCLES, QUERIES, TABLES, cycle

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

FEW = ("q01", "q03", "q04", "q06", "q10", "q13", "q16")  # each shape once: the others are in the long test
SOURCE = re.compile(rf"""\bpublic"?\."?({"|".join(TABLES)})\b""")  # our statements qualify all names
DESCRIBED = re.compile(r"AS described LIMIT (0|\$1)$")  # asks for the types of columns and reads no row
STATEMENTS = """
SELECT s.query FROM pg_stat_statements AS s JOIN pg_database AS d ON d.oid = s.dbid
WHERE d.datname = current_database() AND s.calls > 0
"""


class Watched:
    """A line whose server counts statements."""

    def __init__(self, database: Database, line: Line) -> None:
        self.line = line
        self.admin = psycopg.connect(database.superuser_dsn, autocommit=True)
        self.admin.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements SCHEMA public")

    def load(self, names: Sequence[str]) -> None:
        """Builds the replicas, which reads the sources, and loads."""
        assert any(SOURCE.search(query) for query in self._asked())
        for name in names:
            self.line.equal(name)

    def tick(self, names: Sequence[str]) -> None:
        """Refreshes the tables; fails if the server read a source table for it."""
        asked = self._asked()
        assert any("pgtrickle_changes" in query for query in asked)
        assert [query for query in asked if SOURCE.search(query) and not DESCRIBED.search(query)] == []
        for name in names:
            self.line.equal(name)

    def _asked(self) -> list[str]:
        """The statements of one tick."""
        self.admin.execute("SELECT public.pg_stat_statements_reset()")
        failed = {o.table.name: o.error.one_line() for o in self.line.tick() if o.error is not None}
        assert not failed
        return [query for (query,) in self.admin.execute(STATEMENTS)]

    def engines(self, name: str) -> set[tuple[str, str]]:
        rows = self.line.sql("SELECT action, engine FROM pgtrickle.get_refresh_history(%s)", name)
        return {(action, engine) for action, engine in rows}


def follow(
    make_database: Callable[..., Database],
    make_line: Callable[..., Line],
    template: str,
    names: Sequence[str],
    cycles: int,
) -> None:
    database = make_database(template=template)
    watched = Watched(database, make_line(database))
    for name in names:
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', 'DIFFERENTIAL', engine => 'spark')"
        watched.line.sql(text, name, QUERIES[name])
    watched.load(names)
    for number in range(cycles):
        cycle(watched.line.conn, number)
        watched.tick(names)
    for name in names:
        watched.line.sql("SELECT pgtrickle.alter_stream_table(%s, refresh_mode => 'FULL')", name)
    cycle(watched.line.conn, cycles)
    watched.tick(names)
    wanted = {("FULL", "spark"), ("DIFFERENTIAL", "spark")}
    assert {name: watched.engines(name) for name in names} == dict.fromkeys(names, wanted)


@pytest.mark.soak
def test_queries_on_spark_leave_the_sources_alone(
    make_database: Callable[..., Database], make_line: Callable[..., Line], tpch_template: str
) -> None:
    follow(make_database, make_line, tpch_template, FEW, cycles=1)


@pytest.mark.soak
def test_all_queries_follow_five_cycles_on_spark(
    make_database: Callable[..., Database], make_line: Callable[..., Line], tpch_template: str
) -> None:
    follow(make_database, make_line, tpch_template, list(QUERIES), cycles=CYCLES)
