"""`/metrics` of a real `pgtrickle run`: a monitor sees counters grow with what happens in the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

from prometheus_client.openmetrics import parser

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import free_port
from tests.fleet.conftest import Run, Small, make_small, wait_for

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
GROWING = (
    "pgtrickle_refreshes_total",
    "pgtrickle_refresh_duration_seconds_count",
    "pgtrickle_refresh_window_changes_sum",
    "pgtrickle_rows_inserted_total",
    "pgtrickle_rows_deleted_total",
    "pgtrickle_refresh_stage_seconds_total",
    "pgtrickle_captured_changes_total",
    "pgtrickle_units_total",
    "pgtrickle_waves_total",
    "pgtrickle_scheduler_ticks_total",
)


class Monitor:
    """Scrapes as Prometheus does."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, accept: str) -> str:
        with urlopen(Request(f"http://{self._address}{path}", headers={"accept": accept}), timeout=60) as response:
            return str(response.read().decode())

    def is_up(self) -> bool:
        try:
            return self.get("/readyz", "text/plain") == "ready\n"
        except OSError:
            return False

    def scrape(self) -> Samples:
        self.get("/tables", "application/json")  # a page is newer than a scrape, which may share a read for 5 seconds
        text = self.get("/metrics", "application/openmetrics-text; version=1.0.0")
        parse: Callable[[str], Any] = parser.text_string_to_metric_families
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in parse(text)
            for sample in family.samples
        }


def total(samples: Samples, name: str, **labels: str) -> float:
    """The sum over the samples that have these labels."""
    return sum(v for (n, found), v in samples.items() if n == name and labels.items() <= dict(found).items())


def test_metrics_follow_what_happens(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    small = make_small(own_server, "metered")
    run = make_run(small.database.dsn, spark_url)
    address = f"127.0.0.1:{free_port()}"
    run.start(http=address, engine="postgres")
    monitor = Monitor(address)
    wait_for(monitor.is_up)
    wait_for(small.is_current)
    wait_for(lambda: total(monitor.scrape(), "pgtrickle_stream_tables", database="metered", state="fresh") == 1)
    before = monitor.scrape()
    differential = {"database": "metered", "mode": "differential", "engine": "postgres", "status": "completed"}
    small.sql("INSERT INTO t VALUES (0, 5), (7, 5), (8, 5)")
    wait_for(small.is_current)
    wait_for(lambda: total(monitor.scrape(), "pgtrickle_refreshes_total", **differential) > 0)
    wait_for(lambda: total(monitor.scrape(), "pgtrickle_units_total") > total(before, "pgtrickle_units_total"))
    wait_for(lambda: total(monitor.scrape(), "pgtrickle_captured_changes_total") >= 3)  # statistics arrive late
    after = monitor.scrape()
    for name in GROWING:
        assert total(after, name) > total(before, name), name
    counted = {name: total(after, name) - total(before, name) for name in GROWING}
    assert counted["pgtrickle_refresh_window_changes_sum"] == 3
    # The group of key 0 is replaced, two are new.
    assert (counted["pgtrickle_rows_inserted_total"], counted["pgtrickle_rows_deleted_total"]) == (3, 1)
    # What a scrape has counted stays counted.
    assert {key for key in before if key[0].endswith("_total")} <= after.keys()
    assert all(after[key] >= value for key, value in before.items() if key[0].endswith(("_total", "_count", "_sum")))
    check_lag(monitor, small)
    assert run.end()[0] == 0


def check_lag(monitor: Monitor, small: Small) -> None:
    """Of a stream table and of its database: 0 but while a change is pending."""

    def lags() -> list[float]:
        samples = monitor.scrape()
        return [
            samples[
                "pgtrickle_stream_table_lag_seconds", (("database", "metered"), ("schema", "public"), ("table", "s"))
            ],
            samples["pgtrickle_lag_max_seconds", (("database", "metered"),)],
        ]

    wait_for(lambda: lags() == [0, 0])
    small.sql("SELECT pgtrickle.suspend_stream_table('s')")
    assert lags() == [0, 0]
    small.sql("INSERT INTO t VALUES (0, 1)")
    wait_for(lambda: min(lags()) > 0)
    small.sql("SELECT pgtrickle.resume_stream_table('s')")
    wait_for(lambda: lags() == [0, 0])
