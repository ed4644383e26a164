"""The time that a function takes must not tell how many rows somebody else has changed.

Time itself cannot be compared on a busy machine. Pages can: a function that reads the changes of a table that its
caller may not read reads more pages after many changes than after none.
"""

from __future__ import annotations

from typing import Any

import psycopg

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.security import proofs
from tests.security.arena import Arena

CHANGES = 60_000  # several hundred pages of the change buffer
MOST_MORE = 100


def test_pages_read_do_not_depend_on_changes_of_others(engine: SparkEngine) -> None:
    with EmbeddedPostgres.create(durable=False) as server:
        arena = Arena(server, engine, by_superuser=False)
        try:
            arena.admin("CREATE ROLE mallory_1 LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA pgtrickle TO mallory_1")
            mallory = arena.session("mallory_1")
            sources = proofs.readable(f"{mallory.info.dsn} password={mallory.info.password}")
            for _ in range(2):  # the first call also reads catalogs
                before = {source: _pages(mallory, source) for source in sources}
            arena.admin("INSERT INTO app.secret SELECT i, 'WORD', 1 FROM generate_series(10, %s + 9) AS i", CHANGES)
            ((buffer, pages),) = arena.admin(
                "SELECT c.relname, pg_relation_size(c.oid) / 8192 FROM pg_class AS c "
                "WHERE c.relnamespace = 'pgtrickle_changes'::regnamespace AND c.relkind = 'r' "
                "ORDER BY pg_relation_size(c.oid) DESC LIMIT 1"
            )
            assert pages > 3 * MOST_MORE, f"{buffer} has {pages} pages: the test would show nothing"
            after = {source: _pages(mallory, source) for source in sources}
        finally:
            arena.close()
    assert len(sources) > 40
    more = {source: after[source] - before[source] for source in sources}
    assert {source: pages for source, pages in more.items() if pages > MOST_MORE} == {}


def _pages(conn: psycopg.Connection[Any], source: str) -> int:
    try:
        rows = conn.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT * FROM {source} AS x"
        ).fetchall()
    except psycopg.errors.InsufficientPrivilege:
        return 0
    top = rows[0][0][0]["Plan"]
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])
