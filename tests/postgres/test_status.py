"""The status functions show what the control plane says, to the number, and to whom it may be shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.conftest import Database
from tests.postgres.rows import capture, create, job, loaded, publish, publish_broker, refreshed

MakeRole = Callable[[Database], psycopg.Connection[Any]]

# with the arguments that make each of them run on a catalog that has stream table s
REPORTS = (
    "worker_pool_status()", "parallel_job_status()", "parallel_job_status(5)", "health_summary()",
    "change_buffer_sizes()", "readers()", "subscribers()", "pgt_publications",
    "worker_allocation_status()", "server_worker_inventory", "broker_status()", "pgt_status()", "health_check()",
    "check_cdc_health()", "dependency_tree()", "trigger_inventory()", "diamond_groups()", "pgt_scc_status()",
    "refresh_timeline()", "refresh_timeline(3)", "st_refresh_stats()", "cache_stats()", "refresh_efficiency()",
    "recommend_refresh_mode()", "refresh_groups()", "stream_tables_info", "pg_stat_stream_tables", "quick_health",
    "version()", "pgt_refresh_groups", "pgt_events",
)  # fmt: skip
NAMED = (
    "explain_st('s')", "explain_refresh_mode('s')", "list_sources('s')", "get_refresh_history('s')",
    "get_refresh_history('s', 2)", "recommend_refresh_mode('s')", "get_staleness('s')", "export_definition('s')",
)  # fmt: skip


# -- all of them


def test_everything_runs_on_an_empty_catalog(db: Database) -> None:
    empty = {
        call: db.sql(f"SELECT count(*) FROM pgtrickle.{call}")[0][0] for call in REPORTS if not call.startswith("pgt_e")
    }
    full = {"worker_pool_status()": 1, "health_summary()": 1, "worker_allocation_status()": 1, "health_check()": 13,
            "cache_stats()": 1, "quick_health": 1, "version()": 1}  # fmt: skip
    assert empty == {call: full.get(call, 0) for call in empty}


def test_everything_runs_for_a_role_with_usage_alone(db: Database, make_role: MakeRole) -> None:
    relid = capture(db)
    pgt_id = create(db, refresh_mode="DIFFERENTIAL")
    loaded(db, pgt_id, last_error_message="secret 1947114711", reinit_reason="secret 1947114711")
    refreshed(db, pgt_id, "DIFFERENTIAL", 5, "FAILED", error_message="secret 1947114711", reason="secret 1947114711")
    job(db, [pgt_id], "PERMANENT_FAILED", detail="secret 1947114711", finished_at=datetime.now(UTC))
    db.sql("INSERT INTO t VALUES (1947114711, 0)")
    other = make_role(db)
    path = "SET search_path = public"
    other.execute(path)
    mine = db.connect()
    seen = ""
    for call in (*REPORTS, *NAMED):
        assert "1947114711" not in str(other.execute(f"SELECT * FROM pgtrickle.{call}").fetchall()), call
        seen += str(mine.execute(f"SELECT * FROM pgtrickle.{call}").fetchall())
    # pgt_status, info, pg_stat, explain_st, twice history, timeline; two columns each of the last three
    assert seen.count("secret 1947114711") > 10
    for column, table in (("last_error_message", "pgt_stream_tables"), ("reinit_reason", "pgt_stream_tables"),
                          ("reason", "pgt_refresh_history"), ("error_message", "pgt_refresh_history"),
                          ("detail", "pgt_scheduler_jobs"), ("broker", "pgt_runtime")):  # fmt: skip
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            other.execute(f"SELECT {column} FROM pgtrickle.{table}")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        other.execute(f"SELECT FROM pgtrickle_changes.changes_{relid}")
    # whoever may read the stream table may read why it failed
    db.sql(f"GRANT SELECT ON s TO {other.info.user}")
    assert other.execute("SELECT last_error_message FROM pgtrickle.pgt_status()").fetchall() == [("secret 1947114711",)]
    assert other.execute("SELECT detail FROM pgtrickle.parallel_job_status()").fetchall() == [("secret 1947114711",)]
    assert other.execute("SELECT reason, error_message FROM pgtrickle.refresh_timeline()").fetchall() == [
        ("secret 1947114711", "secret 1947114711")
    ]


def test_messages_cannot_be_had_by_a_hostile_search_path(db: Database, make_role: MakeRole) -> None:
    loaded(db, create(db), last_error_message="secret")
    other = make_role(db)
    db.superuser_sql(f"CREATE SCHEMA evil AUTHORIZATION {other.info.user}")
    other.execute(
        "CREATE FUNCTION evil.yes(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT true'; "
        "CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.yes); "
        "CREATE FUNCTION evil.has_table_privilege(oid, text) RETURNS bool LANGUAGE sql AS 'SELECT true'; "
        "CREATE FUNCTION evil.pg_has_role(oid, text) RETURNS bool LANGUAGE sql AS 'SELECT true'"
    )
    other.execute("SET search_path = evil, pg_catalog")
    assert other.execute("SELECT last_error_message FROM pgtrickle._messages").fetchall() == [(None,)]
    assert other.execute("SELECT last_error_message FROM pgtrickle.stream_tables_info").fetchall() == [(None,)]


# -- workers


def test_worker_functions_show_what_the_scheduler_published(db: Database, scheduler: object) -> None:
    publish(db)
    publish_broker(db, create(db))
    assert db.sql("SELECT * FROM pgtrickle.worker_pool_status()") == [(3, 8, 6, "on")]
    assert db.sql("SELECT * FROM pgtrickle.worker_allocation_status()") == [
        ('odd "db"', 1, 0, 0, 3, 8),
        ("shop", 2, 4, 5, 3, 8),
    ]
    at = datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert db.sql("SELECT * FROM pgtrickle.server_worker_inventory") == [
        ("launcher", None, 11, "running", at, 52428800),
        ("scheduler", "shop", 12, "waiting", at + timedelta(seconds=1), 31457280),
    ]
    assert db.sql("SELECT * FROM pgtrickle.cache_stats()") == [(90, 10, 0.9, 7, 64, 2, 6, 4, 5, 1)]
    assert db.sql("SELECT * FROM pgtrickle.broker_status()") == [
        ("public.orders", "shop", 12, "0/16B3748", 7, 3, 100, 200, 16400, 16384, 0x16B3748)
    ]


def test_what_the_broker_counts_is_for_those_who_may_read_what_is_made_of_it(
    db: Database, scheduler: object, make_role: MakeRole
) -> None:
    publish(db)
    mirror = create(db, "mirror")
    publish_broker(db, mirror)
    create(db, "s", "SELECT a FROM mirror")
    other, seen = (
        make_role(db),
        "SELECT source, consumers, pending_rows, max_lsn, max_lsn_u64 FROM pgtrickle.broker_status()",
    )
    assert other.execute(seen).fetchall() == [("public.orders", 3, None, None, None)]
    for place in ("pgtrickle._runtime()", "pgtrickle._broker_answers"):
        assert "16B3748" not in str(other.execute(f"SELECT * FROM {place}").fetchall())
    db.sql(f"GRANT SELECT ON s TO {other.info.user}")
    assert other.execute(seen).fetchall() == [("public.orders", 3, 12, "0/16B3748", 0x16B3748)]
    assert db.sql(seen) == [("public.orders", 3, 12, "0/16B3748", 0x16B3748)]
    db.sql("DELETE FROM pgtrickle.pgt_mirrors")  # of what is not mirrored here nothing is shown
    assert db.sql(seen) == []


def test_worker_functions_know_settings_only_while_nobody_runs(db: Database) -> None:
    publish(db)
    publish_broker(db, create(db))
    assert db.sql("SELECT * FROM pgtrickle.worker_pool_status()") == [(0, 4, 4, "on")]
    assert db.sql("SELECT * FROM pgtrickle.worker_allocation_status()") == [(db.name, 0, 0, 0, 0, 4)]
    assert db.sql("SELECT * FROM pgtrickle.server_worker_inventory") == []
    assert db.sql("SELECT * FROM pgtrickle.broker_status()") == []
    assert db.sql("SELECT * FROM pgtrickle.cache_stats()") == [(0, 0, None, 0, 2048, 0, 0, 0, 0, 0)]
    for setting, value in (("max_dynamic_refresh_workers", "16"), ("per_database_worker_quota", "5"),
                           ("parallel_refresh_mode", "DRY_RUN"), ("max_concurrent_refreshes", "nonsense")):  # fmt: skip
        db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.{setting} = '{value}'")
    assert db.sql("SELECT * FROM pgtrickle.worker_pool_status()") == [(0, 16, 5, "dry_run")]
    assert db.sql("SELECT * FROM pgtrickle.worker_allocation_status()") == [(db.name, 0, 5, 0, 0, 16)]


def test_worker_functions_take_a_state_with_nothing_in_it(db: Database, scheduler: object) -> None:
    states: tuple[dict[str, Any], ...] = (
        {},
        {"pool": {}, "databases": [], "processes": [], "cache": {}, "origins": []},
    )
    for state in states:
        publish(db, state)
        assert db.sql("SELECT * FROM pgtrickle.worker_pool_status()") == [(0, 4, 4, "on")]
        assert db.sql("SELECT * FROM pgtrickle.worker_allocation_status()") == [(db.name, 0, 0, 0, 0, 4)]
        assert db.sql("SELECT * FROM pgtrickle.server_worker_inventory") == []
        assert db.sql("SELECT * FROM pgtrickle.broker_status()") == []


def test_jobs_are_shown_until_they_have_been_finished_for_long(db: Database) -> None:
    db.sql('CREATE SCHEMA "Odd Schema"')
    first, second = create(db), create(db, '"Odd Schema"."Odd.Name"')
    now = datetime.now(UTC)
    old = job(db, [first], "QUEUED", "1 hour")
    running = job(db, [second, first], "RUNNING", unit_kind="fused_chain", worker_pid=7, started_at=now, tier="warm")
    recent = job(
        db, [second], "RETRYABLE_FAILED", started_at=now - timedelta(seconds=12.5),
        finished_at=now - timedelta(seconds=10),
        attempt_no=2, detail="try again",
    )  # fmt: skip
    job(db, [first], "SUCCEEDED", finished_at=now - timedelta(hours=1))
    gone = job(db, [first, 999], "CANCELLED", finished_at=now, detail="dropped")
    found = db.sql("SELECT * FROM pgtrickle.parallel_job_status()")
    assert [r[0] for r in found] == [gone, recent, running, old]
    assert found[1] == (
        recent, f"singleton:{second}", "singleton", "RETRYABLE_FAILED", 1, 2, 100, None, found[1][8],
        now - timedelta(seconds=12.5), now - timedelta(seconds=10), 2500.0, "hot",
        ['"Odd Schema"."Odd.Name"'], "try again",
    )  # fmt: skip
    assert found[2][2:8] == ("fused_chain", "RUNNING", 2, 1, 100, 7)
    assert found[2][11] > 0
    assert found[2][12:] == ("warm", ['"Odd Schema"."Odd.Name"', "public.s"], None)
    assert found[3][11] is None
    assert found[0][13:] == (["public.s", "999"], "dropped")
    assert [r[0] for r in db.sql("SELECT job_id FROM pgtrickle.parallel_job_status(5)")] == [gone, running, old]
    assert db.sql("SELECT count(*) FROM pgtrickle.parallel_job_status(0) WHERE status = 'QUEUED'") == [(1,)]


def test_clear_caches_tells_the_control_plane_and_counts(db: Database, make_role: MakeRole) -> None:
    assert db.sql("SELECT pgtrickle.clear_caches()") == [(0,)]
    scheduler = db.connect(application_name="pgtrickle/scheduler")
    publish(db)
    assert make_role(db).execute("SELECT pgtrickle.clear_caches()").fetchall() == [(9,)]
    assert db.sql("SELECT pgtrickle.clear_caches()") == [(0,)]  # they are about to be removed by the call before
    publish(db)
    assert db.sql("SELECT pgtrickle.clear_caches(), pgtrickle.clear_caches()") == [(9, 0)]
    assert (
        db.sql("SELECT pgt_id, what FROM pgtrickle.pgt_events WHERE what = 'clear_caches'")
        == [(None, "clear_caches")] * 5
    )
    scheduler.close()
