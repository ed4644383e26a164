"""On a standby everything can be looked at, and what changes something is refused with a clear error."""

from __future__ import annotations

import psycopg
import pytest

from pgtrickle.db import connect, install
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.postgres.test_status import NAMED, REPORTS

REFUSED = (
    "create_stream_table('x', 'SELECT 1 AS a')", "alter_stream_table('s', schedule => '1m')", "drop_stream_table('s')",
    "refresh_stream_table('s')", "manual_refresh('s')", "resume_stream_table('s')", "repair_stream_table('s')",
    "clear_caches()", "create_refresh_group('g', ARRAY['s', 'r'])", "drop_refresh_group('g')",
)  # fmt: skip


def test_standby_shows_and_refuses() -> None:
    with EmbeddedPostgres.create(durable=False) as server:
        with connect(server.dsn(), role="test", autocommit=True) as conn:
            install(conn)
            conn.execute("CREATE TABLE public.t (a int)")
            for name in ("s", "r"):
                conn.execute(f"SELECT pgtrickle.create_stream_table('public.{name}', 'SELECT a FROM public.t')")
        # with nobody to follow it stays in recovery, as a standby does that waits for its primary
        (server.data / "standby.signal").touch()
        server.restart()
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            assert conn.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
            status = "SELECT total_stream_tables, scheduler_status FROM pgtrickle.health_summary()"
            assert conn.execute(status).fetchone() == (2, "STANDBY")
            assert conn.execute("SELECT severity FROM pgtrickle.health_check()").fetchone() == ("OK",)
            for call in (*REPORTS, *NAMED):
                conn.execute(f"SELECT * FROM pgtrickle.{call}")
            for call in REFUSED:
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="this server is a standby"):
                    conn.execute(f"SELECT pgtrickle.{call}")
