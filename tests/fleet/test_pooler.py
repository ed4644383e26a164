"""The product behind PgBouncer: it works, leaves nothing to the other clients of the pool, takes nothing from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.install import install, uninstall
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.refresh.plan_requests import plan_of_query
from tests.conftest import Database, create_database
from tests.fleet.conftest import Run, Shop, wait_for
from tests.pgbouncer import Neighbour, PgBouncer


@pytest.fixture
def pooler(shop: Shop) -> Iterator[PgBouncer]:
    with PgBouncer(shop.server, "transaction") as pooler:
        yield pooler


def holders(shop: Shop) -> set[tuple[str, str]]:
    rows = shop.sql("SELECT name, holder FROM pgtrickle.pgt_leases WHERE until > clock_timestamp()")
    return {(name, holder) for name, holder in rows}


def check(shop: Shop, dsn: str, runs: list[Run]) -> None:
    results = verify_tables(dsn, None)
    assert len(results) == 6
    assert [r for r in results if not r.ok] == []
    shop.check_history()
    for run in runs:
        assert run.traceback() == ""


def test_a_fleet_behind_a_transaction_pooler_leaves_no_trace_and_minds_none(
    shop: Shop, pooler: PgBouncer, spark_url: str, make_run: Callable[..., Run]
) -> None:
    dsn = pooler.dsn("shop")
    neighbour, workload, run = Neighbour(dsn), shop.workload(), make_run(dsn, spark_url)
    neighbour.start()
    run.start(connection_pooler_mode="transaction")
    try:
        shop.wait_loaded()
        workload.start()
        shop.wait_progress(30)
        status = shop.sql("SELECT scheduler_status FROM pgtrickle.health_summary()")
        workload.stop()
        check(shop, dsn, [run])
    finally:
        workload.stop()
        neighbour.stop()
    assert workload.tally.error is None
    assert status == [("ACTIVE",)]
    assert {name for name, _ in holders(shop)} == {"launcher", "scheduler"}
    assert neighbour.found == []
    assert neighbour.looks > 200
    used = shop.sql(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/%%' AND pid = ANY (%s)",
        list(neighbour.sessions),
    )
    assert used[0][0] > 0, "they never shared a session"
    assert shop.sql("SELECT count(*), count(scheduler_pid), count(worker_pid) FROM pgtrickle.pgt_scheduler_jobs")[0][
        1:
    ] == (0, 0)
    differential = shop.sql("SELECT count(*) FROM pgtrickle.pgt_refresh_history WHERE action = 'DIFFERENTIAL'")
    assert differential[0][0] > 20
    run.end()
    assert holders(shop) == set(), "a clean end gives the leases back"
    assert shop.sql("SELECT scheduler_status FROM pgtrickle.health_summary()") == [("STOPPED",)]


def test_refresh_and_wait_through_a_transaction_pooler(
    shop: Shop, pooler: PgBouncer, spark_url: str, make_run: Callable[..., Run]
) -> None:
    dsn = pooler.dsn("shop")
    run = make_run(dsn, spark_url)
    run.start(connection_pooler_mode="transaction")
    shop.wait_loaded()
    names = shop.sql("SELECT format('%I.%I', pgt_schema, pgt_name) FROM pgtrickle.pgt_stream_tables")
    asked = shop.sql("SELECT clock_timestamp()")[0][0]
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as conn:
        for (name,) in names:
            conn.execute("CALL pgtrickle.refresh_and_wait(%s, '3 minutes')", (name,))
        conn.execute("UPDATE orders SET status = 'paid' WHERE id <= 10")
        conn.execute("CALL pgtrickle.refresh_and_wait('worklist', '3 minutes')")
    answered = "SELECT count(*) FROM pgtrickle.pgt_stream_tables WHERE refresh_done_at > %s"
    assert shop.sql(answered, asked) == [(len(names),)]
    check(shop, dsn, [run])
    left = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = pgtrickle._commit_lock(0) >> 32"
    wait_for(lambda: shop.sql(left) == [])


@pytest.mark.soak
def test_of_two_fleets_behind_a_transaction_pooler_one_is_active_and_the_other_takes_over(
    shop: Shop, pooler: PgBouncer, spark_url: str, make_run: Callable[..., Run]
) -> None:
    """The mode comes from the database here."""
    shop.sql("SELECT pgtrickle.set_option('connection_pooler_mode', 'transaction')")
    dsn = pooler.dsn("shop")
    first, second = make_run(dsn, spark_url), make_run(dsn, spark_url)
    first.start()
    shop.wait_loaded()
    ours = holders(shop)
    assert {name for name, _ in ours} == {"launcher", "scheduler"}
    second.start()
    wait_for(lambda: "Another launcher is active" in second.text())
    workload = shop.workload()
    workload.start()
    try:
        shop.wait_progress(20)
        assert holders(shop) == ours
        first.kill()
        wait_for(lambda: len(holders(shop) - ours) == 2)
        shop.wait_progress(20)
    finally:
        workload.stop()
    check(shop, dsn, [first, second])


def test_a_fleet_without_a_pooler_waits_for_the_lease_of_one_with(
    shop: Shop, pooler: PgBouncer, spark_url: str, make_run: Callable[..., Run]
) -> None:
    pooled, direct = make_run(pooler.dsn("shop"), spark_url), make_run(shop.dsn, spark_url)
    pooled.start(connection_pooler_mode="transaction")
    shop.wait_loaded()
    direct.start()
    wait_for(lambda: "Another launcher is active" in direct.text())
    pooled.end()
    wait_for(lambda: "This launcher is active" in direct.text())
    pooled.start(connection_pooler_mode="transaction")
    wait_for(lambda: "Another launcher is active" in pooled.text())
    assert holders(shop) == set()


def test_a_fleet_behind_a_session_pooler_gives_its_sessions_back_clean(
    shop: Shop, spark_url: str, make_run: Callable[..., Run]
) -> None:
    with PgBouncer(shop.server, "session", 30) as pooler:
        dsn = pooler.dsn("shop")
        run = make_run(dsn, spark_url)
        run.start(connection_pooler_mode="session")
        shop.wait_loaded()
        workload = shop.workload()
        workload.start()
        try:
            shop.wait_progress(20)
        finally:
            workload.stop()
        check(shop, dsn, [run])
        run.end()
        neighbour = Neighbour(dsn)
        neighbour.start()
        wait_for(lambda: neighbour.looks > 20)
        neighbour.stop()
        assert neighbour.found == []


def test_commands_work_through_a_transaction_pooler_without_being_told(shop: Shop, pooler: PgBouncer) -> None:
    database: Database = create_database(shop.server, "other")
    dsn = pooler.dsn("other")
    neighbour = Neighbour(dsn)
    neighbour.start()
    try:
        wait_for(lambda: neighbour.looks > 10)
        with connect(dsn, role="install", pooler="transaction") as conn:
            install(conn)
        database.sql("CREATE TABLE t (a int PRIMARY KEY, b numeric)")
        found = plan_of_query(dsn, "SELECT b, count(*) AS n FROM t GROUP BY b")
        assert found["mode"] == "DIFFERENTIAL"
        assert verify_tables(dsn, None) == []
        with connect(dsn, role="install", pooler="transaction") as conn:
            uninstall(conn)
    finally:
        neighbour.stop()
    assert neighbour.found == []
    with psycopg.connect(database.dsn) as conn:
        assert conn.execute("SELECT to_regnamespace('pgtrickle')").fetchone() == (None,)
