"""What counts as stale, as broken, as running."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import psycopg
import pytest
from cronsim import CronSim

from pgtrickle.model.work import MULTIPLIERS
from pgtrickle.scheduler.due import DIRTY, Due
from pgtrickle.scheduler.schedule import interval_seconds
from tests.conftest import Database, run
from tests.postgres.rows import capture, create, job, loaded, publish, row


def test_health_summary_counts_states(db: Database, scheduler: object) -> None:
    publish(db)
    for name, columns in (
        ("a", {}),
        ("b", {"status": "ERROR"}),
        ("c", {"status": "SUSPENDED"}),
        ("d", {"needs_reinit": True}),
    ):
        loaded(db, create(db, name), **columns)
    create(db, "e")
    assert row(db, "SELECT * FROM pgtrickle.health_summary()") == {
        "total_stream_tables": 5, "active_count": 2, "error_count": 1, "suspended_count": 1, "stale_count": 0,
        "reinit_pending": 1, "max_staleness_seconds": 0.0, "scheduler_status": "ACTIVE", "cache_hit_rate": 0.9,
    }  # fmt: skip
    assert db.sql("SELECT * FROM pgtrickle.quick_health") == [(5, 2, 0, True, "CRITICAL")]


def test_scheduler_status(db: Database, scheduler: psycopg.Connection[Any]) -> None:
    def status() -> Any:
        return db.sql("SELECT scheduler_status FROM pgtrickle.health_summary()")[0][0]

    assert status() == "ACTIVE"
    publish(db, {"enabled": False})
    assert status() == "DISABLED"
    scheduler.close()
    while status() != "STOPPED":  # the backend ends a moment later
        pass
    # what is no scheduler does not count as one
    db.connect(application_name="pgtrickle/status")
    assert status() == "STOPPED"
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.enabled = off")
    assert status() == "DISABLED"
    assert db.sql("SELECT status FROM pgtrickle.quick_health") == [("EMPTY",)]
    create(db)
    assert db.sql("SELECT status FROM pgtrickle.quick_health") == [("WARNING",)]


@pytest.mark.parametrize(
    ("age", "options", "stale"),
    [
        ("2 minutes", {"schedule": "30s"}, True),
        ("2 minutes", {"schedule": "1m 30s"}, True),
        ("2 minutes", {"schedule": "5m"}, False),
        ("2 minutes", {"schedule": "90"}, True),
        ("2 minutes", {"schedule": "calculated"}, True),
        ("5 s", {"schedule": "calculated"}, False),
        ("2 minutes", {"schedule": "1h", "refresh_mode": "IMMEDIATE"}, True),
        ("2 days", {"schedule": "@daily"}, True),
        ("1 minute", {"schedule": "0 0 29 2 *"}, False),
        ("2 minutes", {"schedule": "* * * * *"}, True),
    ],
)
def test_stale_is_older_than_the_schedule_allows_while_changes_are_pending(
    db: Database, age: str, options: dict[str, Any], stale: bool
) -> None:
    capture(db)
    loaded(db, create(db, **options), age)
    health = "SELECT stale_count, max_staleness_seconds > 0 FROM pgtrickle.health_summary()"
    assert db.sql(health) == [(0, False)]
    db.sql("INSERT INTO t VALUES (1, 1)")
    assert db.sql(health) == [(int(stale), True)]
    assert db.sql("SELECT stale, changes_pending FROM pgtrickle.stream_tables_info") == [(stale, True)]
    ((behind,),) = db.sql("SELECT max_staleness_seconds FROM pgtrickle.health_summary()")
    ((exact,),) = db.sql("SELECT extract(epoch FROM %s::interval)::float8", age)
    assert exact <= behind < exact + 5


def test_tiers_stretch_what_the_schedule_allows(db: Database) -> None:
    capture(db)
    pgt_id = create(db, schedule="1m")
    db.sql("INSERT INTO t VALUES (1, 1)")
    found = {}
    for tier in ("hot", "warm", "cold", "frozen"):
        db.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_tier = %s, refresh_requested_at = NULL", tier)
        db.sql(
            "UPDATE pgtrickle.pgt_stream_tables SET data_timestamp = clock_timestamp() - interval '3 m' "
            "WHERE pgt_id = %s",
            pgt_id,
        )
        found[tier] = db.sql("SELECT stale_count FROM pgtrickle.health_summary()")[0][0]
    assert found == {"hot": 1, "warm": 1, "cold": 0, "frozen": 0}
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.tiered_scheduling = off")
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_tier = 'cold'")
    assert db.sql("SELECT stale_count FROM pgtrickle.health_summary()") == [(1,)]


def test_calculated_is_allowed_what_its_readers_are(db: Database) -> None:
    capture(db)
    for name, source in (("base", "t"), ("mid", "base"), ("top", "mid"), ("side", "t")):
        schedule = "1h" if name == "top" else "calculated"
        loaded(db, create(db, name, f"SELECT a FROM {source}", schedule=schedule), "10 minutes")
    db.sql("INSERT INTO t VALUES (1, 1)")
    stale = "SELECT pgt_name FROM pgtrickle.stream_tables_info WHERE stale"
    assert db.sql(stale) == [("side",)]
    db.sql("SELECT pgtrickle.alter_stream_table('top', schedule => '1m')")
    assert sorted(db.sql(stale)) == [("base",), ("side",)]


def test_a_working_scheduler_is_given_its_time(db: Database, scheduler: psycopg.Connection[Any]) -> None:
    capture(db)
    pgt_id = create(db, schedule="30s")
    loaded(db, pgt_id, "2 days")
    db.sql("INSERT INTO t VALUES (1, 1)")
    stale = "SELECT stale_count, max_staleness_seconds FROM pgtrickle.health_summary()"

    def found() -> tuple[int, bool]:
        ((count, seconds),) = db.sql(stale)
        return count, seconds > 172_800

    # quiet for two days and changed just now: due, and not late
    assert found() == (0, False)
    job_id = job(db, [pgt_id], "QUEUED", "2 s")
    assert found() == (0, False)
    db.sql(
        "UPDATE pgtrickle.pgt_scheduler_jobs SET enqueued_at = clock_timestamp() - interval '1 m' WHERE job_id = %s",
        job_id,
    )
    assert found() == (1, True)
    db.sql("UPDATE pgtrickle.pgt_scheduler_jobs SET finished_at = clock_timestamp(), status = 'CANCELLED'")
    assert found() == (0, False)
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET status = 'SUSPENDED'")
    assert found() == (1, True)
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET status = 'ACTIVE'")
    publish(db, {"enabled": False})
    assert found() == (1, True)


def test_a_request_without_an_answer_is_stale(db: Database, scheduler: object) -> None:
    create(db)
    stale = "SELECT stale_count FROM pgtrickle.health_summary()"
    assert db.sql(stale) == [(0,)]
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_requested_at = clock_timestamp() - interval '2 m'")
    assert db.sql(stale) == [(1,)]


def test_what_is_not_captured_is_stale_by_its_schedule(db: Database) -> None:
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT 1 AS a")
    for name, schedule in (("s", "1m"), ("calm", "calculated")):
        loaded(db, create(db, name, "SELECT a FROM m", schedule=schedule), "1 hour")
    assert db.sql("SELECT pgt_name FROM pgtrickle.stream_tables_info WHERE stale") == [("s",)]


def test_cron_in_sql_is_cron_in_the_scheduler(db: Database) -> None:
    rng = random.Random(5)

    def field(low: int, high: int) -> str:
        a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
        step = rng.randint(1, 12)
        return rng.choice(["*", "*", f"*/{step}", f"{a}", f"{a}-{b}", f"{a}-{b}/{step}", f"{a}/{step}", f"{a},{b}"])

    cases = [
        f"{field(0, 59)} {field(0, 23)} {field(1, 28)} {field(1, 12)} {field(0, 7)}" for _ in range(60)
    ] + [f"{field(0, 59)} {field(0, 59)} {field(0, 23)} * * {field(0, 7)}" for _ in range(20)] + [
        "0 0 29 2 *", "0 0 1 jan,JUL *", "30 4 * * mon-fri", "0 0 13 * fri", "0 0 */2 * 1", "* * * * * *", "0 0 1 1 *",
    ]  # fmt: skip
    conn = db.connect()
    for case in cases:
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=rng.randint(0, 2 * 365 * 86400))
        ((latest,),) = run(conn, "SELECT pgtrickle._cron_latest(pgtrickle._check_schedule(%s), %s)", case, at)
        assert latest <= at, case
        upper = case.upper()
        assert next(CronSim(upper, latest)) > at, case
        assert next(CronSim(upper, latest - timedelta(seconds=1))) == latest, case


@pytest.mark.parametrize(
    ("schedule", "seconds"),
    [("90", 90), ("30s", 30), ("1h30m", 5400), ("1 d", 86400), ("2w 250ms", 1209600.25), ("calculated", None),
     ("* * * * *", None), ("@hourly", None),
     ("5 minutes", 300), ("2 Hrs 10secs 1 min", 7270), ("1 week 2days 1hour 3 s", 781203)],
)  # fmt: skip
def test_durations_in_sql_are_durations_in_the_scheduler(db: Database, schedule: str, seconds: float | None) -> None:
    stored = "SELECT pgtrickle._schedule_seconds(pgtrickle._check_schedule(%s))"
    assert db.sql(stored, schedule) == [(seconds,)]
    assert interval_seconds(schedule) == seconds


@pytest.mark.parametrize("tier", ["hot", "warm", "cold"])
@pytest.mark.parametrize("schedule", ["45", "30s", "1h30m", "2d", "* * * * *", "*/7 3 * * *", "@daily", "0 0 29 2 *"])
def test_a_table_is_behind_its_schedule_in_sql_when_it_is_due_in_the_scheduler(
    db: Database, schedule: str, tier: str
) -> None:
    """The status functions have a due test of their own, in SQL."""
    create(db, schedule=schedule)
    db.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_tier = %s", tier)
    now = datetime(2024, 5, 1, 10, 0, 30, tzinfo=UTC)
    ((instant,),) = db.sql("SELECT extract(epoch FROM instant)::float8 FROM pgtrickle._fresh_from(%s)", now)
    ages: list[float] = [0, 1, 29, 31, 44, 46, 59, 61, 89, 91, 299, 301, 449, 451, 3599, 3601, 5399, 5401, 10799, 10801]
    ages += [days * 86400 + seconds for days in (0.5, 1, 2, 4, 20, 100, 500) for seconds in (-1, 1)]
    for last in (now.timestamp() - age for age in ages):
        due = Due.of([schedule], [DIRTY], [last], [False])
        if due.cron.size == 0:  # cron has no tier
            due.set_multiplier(np.array([0]), np.array([float(MULTIPLIERS[tier])]))
        assert (last <= instant) == bool(len(due.due(now.timestamp()))), (last, instant)


def test_health_check_says_what_to_look_at(db: Database) -> None:
    def found() -> dict[str, tuple[str, str]]:
        return {name: (severity, detail) for name, severity, detail in db.sql("SELECT * FROM pgtrickle.health_check()")}

    first = found()
    assert list(first) == [
        "scheduler", "error_tables", "suspended_tables", "stale_tables", "needs_reinit", "consecutive_errors",
        "storage", "capture", "worker_pool", "readers", "origins", "broker", "subscribers",
    ]  # fmt: skip
    assert first["scheduler"] == ("ERROR", "no scheduler is connected to this database (hint: start pgtrickle run)")
    assert {severity for name, (severity, _) in first.items() if name != "scheduler"} == {"OK"}
    relid = capture(db)
    scheduler = db.connect(application_name="pgtrickle/scheduler")
    silent = [{"origin": "far:5432/shop", "problem": "connection refused"}]
    publish(db, {"pool": {"active": 8, "max": 8}, "origins": silent, "broker_problem": "it does not answer"})
    db.sql('CREATE SCHEMA "Odd Schema"')
    loaded(db, create(db, '"Odd Schema"."Odd.Name"'), status="ERROR", consecutive_errors=1)
    loaded(db, create(db, "b"), status="SUSPENDED", needs_reinit=True, consecutive_errors=3)
    stuck = create(db, "c")
    loaded(db, stuck, "1 hour")
    db.sql(f"INSERT INTO t VALUES (1, 1); DROP TRIGGER pgtrickle_{relid}_i ON t; DROP TABLE b")
    job(db, [stuck], "QUEUED", "10 minutes")
    assert found() == {
        "scheduler": ("OK", "the scheduler is connected"),
        "error_tables": ("ERROR", '"Odd Schema"."Odd.Name"'),
        "suspended_tables": ("WARN", "public.b"),
        "stale_tables": ("WARN", "public.c"),
        "needs_reinit": ("WARN", "public.b"),
        "consecutive_errors": ("WARN", '"Odd Schema"."Odd.Name" (1), public.b (3)'),
        "storage": ("ERROR", "public.b"),
        "capture": ("WARN", "public.t: 1 of 5 capture triggers are missing"),
        "worker_pool": (
            "WARN",
            "all 8 workers are busy and 1 units of this database wait: raise max_dynamic_refresh_workers",
        ),
        "readers": ("OK", "no reader in another database blocks trimming"),
        "origins": ("WARN", "far:5432/shop: connection refused"),
        "broker": ("WARN", "it does not answer"),
        "subscribers": ("OK", "no subscriber lags by more than publication_lag_warn_lsn, or it is 0"),
    }
    scheduler.close()


def test_check_cdc_health_per_source(db: Database) -> None:
    db.sql('CREATE TABLE "Odd T" (a int); CREATE TABLE u (a int); CREATE TABLE v (a int)')
    odd, gone, bare, fine = capture(db, '"Odd T"'), capture(db, "u"), capture(db, "v"), capture(db)
    create(
        db, "s", 'SELECT a FROM t UNION ALL SELECT a FROM "Odd T" UNION ALL SELECT a FROM u UNION ALL SELECT a FROM v'
    )
    db.superuser_sql(f"ALTER DATABASE {db.name} SET pg_trickle.max_buffer_rows = 2")
    db.sql(f"INSERT INTO t VALUES (1, 1), (2, 2); DROP TABLE pgtrickle_changes.changes_{bare}; DROP TABLE u CASCADE")
    db.sql(f'ALTER TABLE "Odd T" DISABLE TRIGGER pgtrickle_{odd}_i')
    found = db.sql(
        "SELECT source_relid::int8, source_table, cdc_mode, slot_name, lag_bytes, confirmed_lsn, alert, pending_rows, "
        "buffer_bytes >= 0 FROM pgtrickle.check_cdc_health()"
    )
    assert sorted(found, key=str) == sorted([
        (odd, 'public."Odd T"', "trigger", None, None, None,
         "1 of 5 capture triggers are not enabled as they should be", 0, True),
        (gone, str(gone), "trigger", None, None, None, "the source was dropped", 0, True),
        (bare, "public.v", "trigger", None, None, None, "the change buffer does not exist", None, None),
        (fine, "public.t", "trigger", None, None, None, None, 2, True),
    ], key=str)  # fmt: skip
    db.sql("INSERT INTO t VALUES (1, 1)")
    assert db.sql("SELECT alert FROM pgtrickle.check_cdc_health() WHERE source_table = 'public.t'") == [
        ("3 changes are pending, more than max_buffer_rows (2): the next refresh is FULL",)
    ]
