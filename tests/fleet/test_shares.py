"""Who gets the workers, seen from pgt_scheduler_jobs; and what the fleet says about itself meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Gate, Run, Small, make_slow, make_small, wait_for

TABLES = 200
OTHERS = 9
FLOOD_SECONDS = 8
NO_SPARK = "sc://127.0.0.1:1"
LONGEST_WAIT = "SELECT max(extract(epoch FROM started_at - enqueued_at))::float8 FROM pgtrickle.pgt_scheduler_jobs"


def most_at_once(database: Small) -> int:
    """Workers that were busy with units of a database at the same time."""
    rows = database.sql(
        "WITH lease AS (SELECT DISTINCT worker_pid, started_at, finished_at FROM pgtrickle.pgt_scheduler_jobs "
        " WHERE started_at IS NOT NULL AND finished_at IS NOT NULL AND worker_pid IS NOT NULL) "
        "SELECT max(n) FROM (SELECT (SELECT count(DISTINCT b.worker_pid) FROM lease AS b "
        " WHERE b.started_at <= a.started_at AND b.finished_at > a.started_at) AS n FROM lease AS a) AS counted"
    )
    return int(rows[0][0] or 0)


@pytest.mark.soak
@pytest.mark.slow
def test_nobody_starves_beside_a_flood(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    first = make_small(own_server, "other0")
    others = [first, *(make_small(own_server, f"other{n}", template="other0") for n in range(1, OTHERS))]
    flood = make_small(own_server, "flood")
    flood.sql(
        "CREATE TABLE source (n int, v int); INSERT INTO source SELECT g, g FROM generate_series(0, 199) AS g; "
        "CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql STABLE AS "
        "'BEGIN PERFORM pg_sleep(0.03); RETURN $1; END'"
    )
    flood.sql(
        "SELECT pgtrickle.create_stream_table('f' || n, 'SELECT slow(v) AS v FROM source WHERE n = ' || n, "
        "'calculated', 'FULL') FROM generate_series(0, %s) AS n",
        TABLES - 1,
    )
    for tier, digit in (("cold", 1), ("warm", 2)):
        flood.sql(
            "SELECT pgtrickle.alter_stream_table(pgt_name, tier => %s) FROM pgtrickle.pgt_stream_tables "
            "WHERE pgt_name LIKE %s",
            tier,
            f"f%{digit}",
        )
    flood.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'off')")
    run = make_run(first.database.dsn, spark_url)
    run.start(max_dynamic_refresh_workers=4)
    wait_for(lambda: flood.sql("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables") == [(True,)])
    assert most_at_once(flood) == 1  # as its parallel_refresh_mode says
    # All were there from the beginning, and one worker took them: hot, then warm, then cold.
    rows = flood.sql(
        "SELECT tier, min(started_at), max(started_at) FROM (SELECT DISTINCT ON (unit_key) * "
        "FROM pgtrickle.pgt_scheduler_jobs ORDER BY unit_key, job_id) AS first GROUP BY tier"
    )
    span = {tier: (low, high) for tier, low, high in rows}
    assert span["hot"][1] <= span["warm"][0] <= span["warm"][1] <= span["cold"][0]

    flood.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'on')")
    stop = threading.Event()

    def keep_changing() -> None:
        while not stop.wait(0.2):
            flood.sql("UPDATE source SET v = v + 1")

    writer = threading.Thread(target=keep_changing)
    writer.start()
    try:
        wait_for(lambda: most_at_once(flood) > 1)
        seconds = []
        began = time.monotonic()
        while time.monotonic() - began < FLOOD_SECONDS:
            for other in others:
                other.add()
            seconds.append(max(wait_for(other.is_current) for other in others))
    finally:
        stop.set()
        writer.join()
    waited = [other.sql(LONGEST_WAIT)[0][0] for other in others]
    jobs = flood.sql("SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs")[0][0]
    print(f"{jobs} units of the flood; rounds of the others {max(seconds):.2f} s at most,", end=" ")
    print(f"{len(seconds)} of them; longest wait in the queue {max(waited):.2f} s")
    ((longest,),) = flood.sql(LONGEST_WAIT)
    assert max(waited) < longest
    assert run.end()[0] == 0


def test_quota_and_burst(own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str) -> None:
    """Guaranteed two of four: alone it gets three (150 %, while the fleet is below 80 %), never four."""
    one = make_small(own_server, "one")
    one.sql("SELECT pgtrickle.set_option('per_database_worker_quota', '2')")
    for number in range(40):  # so many that each worker's part is full
        make_slow(one, f"s{number}", seconds=0.1)
    run = make_run(one.database.dsn, spark_url)
    run.start(max_dynamic_refresh_workers=4)
    seen: list[tuple[int, int]] = []

    def is_loaded() -> bool:
        seen.append(one.sql(RUNNING_AND_QUEUED)[0])
        return one.sql(ALL_LOADED) == [(True,)]

    wait_for(is_loaded)
    assert most_at_once(one) == 3
    status = (
        "SELECT workers_quota, per_db_cap FROM pgtrickle.worker_allocation_status(), pgtrickle.worker_pool_status()"
    )
    assert one.sql(status) == [(2, 3)]
    # A worker is at one unit at a time, though it has taken many: the check for an undersized pool sees that they wait.
    assert max(running for running, _ in seen) == 3
    assert max(waiting for _, waiting in seen) > 10


SURE = timedelta(seconds=2)  # a lease is assigned a little before its worker notes the beginning


@pytest.mark.slow
def test_quota_is_strict_at_80_percent_of_the_workers(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    """Two databases that are guaranteed two of five each. Alone one gets three. Beside the other, while four work,
    none gets a third one: the fifth stays free, though both have units that wait."""
    both = [make_small(own_server, "one"), make_small(own_server, "two")]
    for database in both:
        database.sql(
            "SELECT pgtrickle.set_option('per_database_worker_quota', '2'); "
            "CREATE TABLE source (v int); INSERT INTO source VALUES (1); "
            "CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql STABLE AS "
            "'BEGIN PERFORM pg_sleep(0.1); RETURN $1; END'"
        )
        # More than two leases take. Without rows, so that nobody waits for Spark: who does leaves room for others.
        database.sql(
            "SELECT pgtrickle.create_stream_table('f' || n, 'SELECT v FROM source WHERE slow(v) < -' || n, "
            "'calculated', 'FULL') FROM generate_series(1, 160) AS n"
        )
    run = make_run(both[0].database.dsn, spark_url)
    run.start(max_dynamic_refresh_workers=5)
    for database in both:
        wait_for(lambda d=database: d.sql(ALL_LOADED) == [(True,)])  # type: ignore[misc]
    stop = threading.Event()

    def keep_changing(database: Small) -> None:
        while not stop.wait(0.2):
            database.sql("UPDATE source SET v = v + 1")

    writers = [threading.Thread(target=keep_changing, args=(database,)) for database in both]
    try:
        writers[1].start()
        wait_for(lambda: most_at_once(both[1]) == 3)
        writers[0].start()
        wait_for(lambda: most_at_once(both[0]) > 1)
        time.sleep(15)
    finally:
        stop.set()
        for writer in writers:
            if writer.ident is not None:
                writer.join()
    assert run.end()[0] == 0
    leases = [(d.name, start, end) for d in both for start, end in d.sql(LEASES)]
    waits = [(d.name, *row) for d in both for row in d.sql(WAITS)]
    strict = 0
    for name, at, _ in leases:
        others = [n for n, start, end in leases if start < at - SURE and end > at]
        if len(others) >= 4:
            strict += 1
            assert others.count(name) < 2, f"{name} got a third worker at {at} while {len(others)} worked"
    # Not because there was nothing to do: so often four worked and units of both waited, looked at every tenth second.
    begin, end = min(s for n, s, _ in leases if n == "one"), max(e for _, _, e in leases)
    idle = 0
    while begin < end:
        begin += timedelta(seconds=0.1)
        working = [n for n, start, stopped in leases if start <= begin < stopped]
        waiting = {n for n, enqueued, start in waits if enqueued < begin - SURE and start > begin + SURE}
        idle += len(working) == 4 and len(waiting) == 2
    print(f"{len(leases)} leases, {strict} begun while four others worked; {idle / 10} s with a free worker")
    assert idle >= 10
    assert max(most_at_once(d) for d in both) == 3


ALL_LOADED = "SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables"
LEASES = """
SELECT taken_at, max(finished_at) FROM pgtrickle.pgt_scheduler_jobs
WHERE taken_at IS NOT NULL AND finished_at IS NOT NULL AND worker_pid IS NOT NULL
GROUP BY worker_pid, taken_at
"""
RUNNING_AND_QUEUED = """
SELECT count(*) FILTER (WHERE status = 'RUNNING'), count(*) FILTER (WHERE status = 'QUEUED')
FROM pgtrickle.parallel_job_status(5)
"""
CRAWLS = """
SELECT FROM pgtrickle.pgt_scheduler_jobs JOIN pgtrickle.pgt_stream_tables ON pgt_id = members[1]
WHERE pgt_name = 'crawl' AND pgt_scheduler_jobs.status = 'RUNNING'
"""
WAITS = "SELECT enqueued_at, started_at FROM pgtrickle.pgt_scheduler_jobs WHERE started_at IS NOT NULL"


def test_immediate_goes_first(own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str) -> None:
    one = make_small(own_server, "one")
    one.sql("CREATE TABLE urgent (k int); INSERT INTO urgent VALUES (1)")
    one.sql(
        "SELECT pgtrickle.create_stream_table('now', 'SELECT count(*) AS n FROM urgent', 'calculated', 'IMMEDIATE')"
    )
    one.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'off')")
    run = make_run(one.database.dsn, spark_url)
    run.start()
    wait_for(one.is_current)
    wait_for(lambda: one.sql("SELECT n FROM now") == [(1,)])
    gate = Gate(one, "crawl")
    wait_for(lambda: one.sql(CRAWLS))
    one.add()
    wait_for(lambda: ("QUEUED",) in one.sql("SELECT status FROM pgtrickle.pgt_scheduler_jobs"))
    one.sql("INSERT INTO urgent VALUES (2)")
    wait_for(lambda: one.sql("SELECT count(*) FROM pgtrickle.pgt_scheduler_jobs WHERE status = 'QUEUED'") == [(2,)])
    gate.open()
    wait_for(one.is_current)
    rows = one.sql(
        "SELECT unit_kind, pgt_name FROM pgtrickle.pgt_scheduler_jobs JOIN pgtrickle.pgt_stream_tables "
        "ON pgt_id = members[1] WHERE started_at >= (SELECT min(started_at) FROM pgtrickle.pgt_scheduler_jobs "
        "WHERE members = ARRAY(SELECT pgt_id FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'crawl')) "
        "ORDER BY started_at"
    )
    assert rows[:3] == [("singleton", "crawl"), ("immediate_closure", "now"), ("singleton", "s")]


def test_what_is_published_follows_what_happens(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str, tmp_path: Path
) -> None:
    one = make_small(own_server, "one")
    two = make_small(own_server, "two", template="one")
    three = make_small(own_server, "three", template="one")
    three.sql("SELECT pgtrickle.drop_stream_table('s')")  # nothing to do: it is listed all the same
    one.sql("SELECT pgtrickle.set_option('parallel_refresh_mode', 'off')")
    two.sql("SELECT pgtrickle.set_option('per_database_worker_quota', '3')")
    run = make_run(one.database.dsn, spark_url)
    ((started,),) = one.sql("SELECT clock_timestamp()")
    store = tmp_path / "templates"
    process = run.start(profile="offload", max_dynamic_refresh_workers=3, template_cache_dir=store)
    for database in (one, two):
        wait_for(database.is_current)

    def shares() -> dict[str, tuple[int, int, int]]:
        return {d["name"]: (d["used"], d["quota"], d["queued"]) for d in two.state()["databases"]}

    wait_for(lambda: shares() == {"one": (0, 0, 0), "three": (0, 0, 0), "two": (0, 3, 0)})
    options = "SELECT value, origin FROM pgtrickle.options() WHERE name = %s"
    assert two.sql(options, "source_cost_weight") == [("20", "profile")]
    assert two.sql(options, "max_dynamic_refresh_workers") == [("3", "flag")]
    assert two.sql(options, "per_database_worker_quota") == [("3", "set_option")]
    wait_for(lambda: two.state()["pool"] == {"active": 0, "max": 3, "per_db_cap": 4, "mode": "on"})
    wait_for(lambda: one.state()["pool"] == {"active": 0, "max": 3, "per_db_cap": 1, "mode": "off"})
    processes = {(p["kind"], p["database"]): p for p in one.state()["processes"] if p["kind"] != "worker"}
    assert processes.keys() == {
        *((kind, None) for kind in ("launcher", "pipeline")),
        *(("scheduler", name) for name in ("one", "two", "three")),
    }
    assert processes["launcher", None]["pid"] == process.pid
    wait_for(lambda: {p["state"] for p in one.state()["processes"]} == {"ACTIVE"})
    assert all(p["memory"] > 10_000_000 for p in processes.values())

    gate = Gate(one, "crawl")
    wait_for(lambda: one.sql(CRAWLS))
    busy = wait_for(lambda: shares()["one"] == (1, 0, 0))
    one.add()
    queued = wait_for(lambda: shares()["one"] == (1, 0, 1))
    wait_for(lambda: one.state()["pool"]["active"] == two.state()["pool"]["active"] == 1)
    # The worker that is busy, and the backend that it writes with; what has no work is idle.
    inventory = (
        "SELECT pid, state, since > %s FROM pgtrickle.server_worker_inventory WHERE kind = 'worker' AND database = %s"
    )
    wait_for(lambda: [state for _, state, _ in one.sql(inventory, started, "one")] == ["ACTIVE"])
    ((pid, _, is_recent),) = one.sql(inventory, started, "one")
    backends = one.sql(
        "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pgtrickle/writer%' AND datname = 'one'"
    )
    assert ((pid,) in backends, is_recent) == (True, True)
    wait_for(lambda: {state for _, state, _ in one.sql(inventory, started, "two")} <= {"IDLE"})
    assert one.sql("SELECT worker_pid FROM pgtrickle.parallel_job_status(5) WHERE status = 'RUNNING'") == [(pid,)]
    gate.open()
    idle = wait_for(lambda: shares()["one"] == (0, 0, 0))
    wait_for(lambda: [state for _, state, _ in one.sql(inventory, started, "one")] == ["IDLE"])
    print(f"published after: busy {busy:.2f} s, queued {queued:.2f} s; idle {idle:.2f} s")
    before = one.state()["cache"]
    one.seconds_to_refresh()
    wait_for(lambda: one.state()["cache"]["hits"] > before["hits"])
    assert one.state()["cache"]["entries"] == before["entries"] == 3
    # A new pipeline compiles nothing that was compiled before, by whichever database.
    os.kill(processes["pipeline", None]["pid"], signal.SIGKILL)
    for database in (one, two):
        database.seconds_to_refresh()
    wait_for(lambda: one.state()["cache"]["stored_hits"] >= 2)
    assert one.sql("SELECT stored_misses, entries <= max_entries FROM pgtrickle.cache_stats()") == [(0, True)]
    # What is cleared is this database's, and the number is what was there.
    wait_for(lambda: one.state()["cache"]["own"] == two.state()["cache"]["own"] == 2)
    assert two.sql("SELECT pgtrickle.clear_caches()") == [(2,)]
    wait_for(lambda: two.state()["cache"]["own"] == 0)
    wait_for(lambda: one.state()["cache"]["entries"] == 1)
    # The file was of both. What the other one clears after that is its entry in memory alone.
    wait_for(lambda: one.state()["cache"]["own"] == 1)
    assert list(store.glob("*/*.template")) == []
    assert one.sql("SELECT pgtrickle.clear_caches()") == [(1,)]
    wait_for(lambda: one.state()["cache"]["entries"] == 0)
    two.seconds_to_refresh()
    wait_for(lambda: two.state()["cache"]["own"] == 2)
    assert two.state()["cache"]["stored_misses"] == 1
    assert len(list(store.glob("*/*.template"))) == 1


def test_a_request_never_waits_for_the_tick(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    """Its notification may arrive while the scheduler is in the middle of a tick for the request before."""
    one = make_small(own_server, "one")
    run = make_run(one.database.dsn, spark_url)
    process = run.start(scheduler_interval_ms=600_000)
    wait_for(lambda: one.sql("SELECT pgtrickle._is_served()") == [(True,)])
    for _ in range(60):
        one.add()
        one.sql("CALL pgtrickle.refresh_and_wait('s', '3 minutes')")
        assert one.is_current()
    # So does a setting of the fleet in the database that --server names.
    one.sql("SELECT pgtrickle.set_option('max_dynamic_refresh_workers', '7')")

    def has_grown() -> bool:
        one.sql("CALL pgtrickle.refresh_and_wait('s', '3 minutes')")
        return one.sql("SELECT max_workers FROM pgtrickle.worker_pool_status()") == [(7,)]

    wait_for(has_grown)

    # Workers that are kept for the next refreshes are threads of the pipeline.
    def has_threads(size: int, least: int, most: int) -> bool:
        one.sql("SELECT pgtrickle.set_option('worker_pool_size', %s)", str(size))
        one.sql("CALL pgtrickle.refresh_and_wait('s', '3 minutes')")
        return least <= _threads(process.pid) <= most

    number = _threads(process.pid)
    wait_for(lambda: has_threads(40, number + 30, number + 60))
    wait_for(lambda: has_threads(0, 1, number + 20))


def _threads(pid: int) -> int:
    """Of a process and its children."""
    number = 0
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            number += 1 + sum(_threads(int(child)) for child in (task / "children").read_text().split())
    return number


def test_wake_ups_are_collected_for_the_debounce_time(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run]
) -> None:
    """Also by ticks that follow a refresh, and by those that look for the changes of writers that were open."""
    debounce_s = 0.5
    one = make_small(own_server, "one")
    run = make_run(one.database.dsn, NO_SPARK)
    run.start(scheduler_interval_ms=600_000, wake_debounce_ms=round(1000 * debounce_s))
    wait_for(lambda: one.sql("SELECT is_populated FROM pgtrickle.pgt_stream_tables") == [(True,)])
    one.add()
    wait_for(one.is_current)
    ((started,),) = one.sql("SELECT clock_timestamp()")
    began = time.monotonic()
    with one.database.connect() as writer:
        for number in range(50):
            writer.execute("INSERT INTO t VALUES (%s, 1)", (number % 3,))
            time.sleep(0.02)
    wait_for(one.is_current)
    elapsed = time.monotonic() - began
    worked = "SELECT count(DISTINCT tick_at) FROM pgtrickle.pgt_scheduler_jobs WHERE tick_at >= %s"
    assert one.sql(worked, started)[0][0] <= 2 + elapsed / debounce_s


def test_a_commit_never_waits_for_the_tick(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    """Whatever the schedule, also while another writer stays open, for whose commit nobody would be notified."""
    one = make_small(own_server, "one")
    one.sql("SELECT pgtrickle.create_stream_table('counts', 'SELECT k, count(*) AS n FROM t GROUP BY k', '1s')")
    one.sql("CREATE TABLE u (k int); SELECT pgtrickle.create_stream_table('copy', 'SELECT k FROM u', '2s')")
    run = make_run(one.database.dsn, spark_url)
    run.start(scheduler_interval_ms=600_000)

    def is_current() -> bool:
        counts = "SELECT k, count(*) FROM t GROUP BY k EXCEPT SELECT k, n FROM counts"
        return one.is_current() and one.sql(counts) == []

    wait_for(lambda: one.sql("SELECT bool_and(is_populated) FROM pgtrickle.pgt_stream_tables") == [(True,)])
    for _ in range(5):
        one.add()
        wait_for(is_current)
    with one.database.connect(autocommit=False) as writer:
        writer.execute("INSERT INTO u VALUES (1)")
        for _ in range(3):
            one.add()
            wait_for(is_current)
        assert one.sql("SELECT k FROM copy") == []
        writer.commit()
    wait_for(lambda: one.sql("SELECT k FROM copy") == [(1,)])
