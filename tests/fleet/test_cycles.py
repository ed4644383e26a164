"""Stream tables that read one another, by the real processes: one unit, one instant, also when one is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Run, make_small, wait_for

CYCLE = {
    "even": "SELECT s.a FROM start s UNION SELECT e.b FROM edge e JOIN odd o ON o.a = e.a",
    "odd": "SELECT DISTINCT e.b AS a FROM edge e JOIN even v ON v.a = e.a WHERE slowly(e.a)",
}
MEMBERS = "FROM pgtrickle.pgt_stream_tables WHERE pgt_name IN ('even', 'odd')"
IS_RIGHT = """
WITH RECURSIVE r(a, n) AS (SELECT a, 0 FROM start UNION SELECT e.b, 1 - n FROM r JOIN edge e USING (a)), wrong AS (
    (SELECT a, 0 FROM even UNION ALL SELECT a, 1 FROM odd EXCEPT ALL SELECT a, n FROM r)
    UNION ALL (SELECT a, n FROM r EXCEPT ALL (SELECT a, 0 FROM even UNION ALL SELECT a, 1 FROM odd))
)
SELECT NOT EXISTS (SELECT FROM wrong)
"""


def test_cycle_is_one_unit_and_survives_the_pipeline(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    one = make_small(own_server, "one")
    one.sql(
        "CREATE TABLE edge (a int, b int); CREATE TABLE start (a int); CREATE TABLE nap (seconds float8); "
        "INSERT INTO nap VALUES (0); INSERT INTO start VALUES (0); "
        "INSERT INTO edge SELECT i, i + 1 FROM generate_series(0, 9) AS i; "
        # declared immutable, so that a definition may call it
        "CREATE FUNCTION slowly(int) RETURNS bool LANGUAGE plpgsql IMMUTABLE AS "
        "'BEGIN PERFORM pg_sleep(seconds) FROM public.nap; RETURN true; END'; "
        "SELECT pgtrickle.set_option('allow_circular', 'on'); "
        "SELECT pgtrickle.set_option('differential_max_change_ratio', '1')"
    )
    for name in CYCLE:
        one.sql("SELECT pgtrickle.create_stream_table(%s, 'SELECT s.a FROM start s')", name)
    for name, query in CYCLE.items():
        one.sql("SELECT pgtrickle.alter_stream_table(%s, query => %s)", name, query)
    run = make_run(one.database.dsn, spark_url)
    run.start()

    def is_right() -> bool:
        return one.sql(IS_RIGHT) == [(True,)] and one.sql(f"SELECT count(DISTINCT frontier) {MEMBERS}") == [(1,)]

    wait_for(is_right)
    status = "SELECT member_count, members, last_iterations FROM pgtrickle.pgt_scc_status()"
    wait_for(lambda: one.sql(status) == [(2, ["public.even", "public.odd"], 7)])
    one.sql("INSERT INTO edge VALUES (10, 11)")
    wait_for(is_right)
    wait_for(lambda: one.sql(status) == [(2, ["public.even", "public.odd"], 2)])
    one.sql("DELETE FROM edge WHERE a = 5")
    wait_for(is_right)
    units = (
        "SELECT DISTINCT unit_kind, cardinality(members) FROM pgtrickle.pgt_scheduler_jobs "
        f"WHERE members && ARRAY(SELECT pgt_id {MEMBERS})"
    )
    assert one.sql(units) == [("cyclic_scc", 2)]  # and none of them by itself

    one.sql("UPDATE nap SET seconds = 3")
    before = one.sql(f"SELECT pgt_name, frontier {MEMBERS} ORDER BY 1")
    rows = one.sql("SELECT a FROM even ORDER BY a")
    running = "SELECT 1 FROM pgtrickle.pgt_scheduler_jobs WHERE unit_kind = 'cyclic_scc' AND status = 'RUNNING'"
    one.sql("INSERT INTO edge VALUES (5, 6)")
    wait_for(lambda: one.sql(running))
    os.kill(one.pid("pipeline"), signal.SIGKILL)
    assert one.sql(f"SELECT pgt_name, frontier {MEMBERS} ORDER BY 1") == before
    assert one.sql("SELECT a FROM even ORDER BY a") == rows
    one.sql("UPDATE nap SET seconds = 0")
    wait_for(is_right)
    assert one.sql(f"SELECT DISTINCT status, consecutive_errors {MEMBERS}") == [("ACTIVE", 0)]
    assert run.end()[0] == 0
