"""The metrics, alert rules and dashboards with a real Prometheus."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from pgtrickle.ipc.fleet_memory import PoolStatus, ProcessState, SchedulerState, WorkerShare
from tests.conftest import Database
from tests.packages import require_program
from tests.postgres.rows import capture, create, loaded, publish, publish_broker, replica
from tests.web import TOKEN, Site, site

DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARDS = sorted(DEPLOY.glob("grafana/*.json"))
PATIENCE_S = 180.0


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **query: str) -> Any:
        with urlopen(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urlencode(query)}", timeout=30) as response:
            found = json.load(response)
        assert found["status"] == "success"
        return found["data"]

    def query(self, text: str) -> list[Any]:
        return list(self.get("query", query=text)["result"])


@pytest.fixture
def metrics(installed: Database, tmp_path: Path) -> Iterator[Site]:
    """Everything that metrics tell of: two stream tables, one of them stopped, a mirror that the broker serves, a
    change buffer, a replica. A token, as an address for others would have."""
    installed.sql("CREATE TABLE t (k int)")
    replica(installed, capture(installed))
    loaded(installed, create(installed, "good", "SELECT k FROM t"))
    loaded(installed, create(installed, "bad", "SELECT k + 1 AS k FROM t"), status="ERROR", last_error_code="PGT202")
    publish(installed)
    publish_broker(installed, create(installed, "mirror", "SELECT k + 2 AS k FROM t"))
    installed.connect(application_name="pgtrickle/scheduler")
    with site([installed], tmp_path, token=TOKEN, address="0.0.0.0:0") as found:
        found.memory.write_processes([ProcessState("launcher", 1, "ACTIVE", 1.0)])
        found.memory.write_pool(PoolStatus(1, 2, 4, 10, 9, 8, 7, 6, 5, 0.0))
        found.memory.write_shares([WorkerShare("k", "d", 2, 4, 3, 6)])
        found.memory.write_slots(1)
        found.memory.write_scheduler(0, SchedulerState("k", "d", 1, "ACTIVE", 1.0, 1.0, 1, 1, 1))
        found.observer.read(0.0)
        yield found


def add_refreshes(database: Database) -> None:
    database.sql(
        "INSERT INTO pgtrickle.pgt_refresh_history (pgt_id, start_time, end_time, action, status, engine, "
        "rows_inserted, rows_deleted, delta_row_count, timings, error_message) "
        "SELECT pgt_id, now() - interval '0.3 s', now(), a, s, e, 5, 2, 100, '{\"read\": 200}', m "
        "FROM pgtrickle.pgt_stream_tables, (VALUES ('DIFFERENTIAL', 'COMPLETED', 'spark', NULL), "
        "('FULL', 'FAILED', NULL, 'PGT300: lost')) AS v(a, s, e, m)"
    )
    database.sql(
        "INSERT INTO pgtrickle.pgt_scheduler_jobs (unit_key, unit_kind, members, status, started_at, finished_at) "
        "SELECT 'x', 'singleton', '{1}', 'SUCCEEDED', clock_timestamp(), clock_timestamp()"
    )


@pytest.fixture
def prometheus(metrics: Site, tmp_path: Path) -> Iterator[Prometheus]:
    program = require_program("prometheus", "prometheus")
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "prometheus.yml").write_text(
        f"""
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ['{DEPLOY}/prometheus/alerts.yml']
scrape_configs:
  - job_name: pgtrickle
    authorization: {{credentials_file: {tmp_path}/token}}
    static_configs: [{{targets: ['127.0.0.1:{metrics.port}']}}]
"""
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                program,
                f"--config.file={tmp_path}/prometheus.yml",
                f"--storage.tsdb.path={tmp_path}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(60)


def queries(dashboard: Path) -> list[str]:
    """As Grafana would send them, with all databases and tables chosen."""
    panels = json.loads(dashboard.read_text())["panels"]
    return [with_all_chosen(target["expr"]) for panel in panels for target in panel["targets"]]


def variables(dashboard: Path) -> dict[str, tuple[str, str]]:
    """Metric and label of each choice that a dashboard offers."""
    found = {}
    for choice in json.loads(dashboard.read_text())["templating"]["list"]:
        if choice["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), (\w+)\)", choice["query"])
            assert match is not None, choice
            found[choice["name"]] = with_all_chosen(match[1]), match[2]
    return found


def with_all_chosen(text: str) -> str:
    return re.sub(r"\$(database|table)", ".*", text)


def test_prometheus_scrapes_evaluates_rules_and_answers_every_query_of_the_dashboards(
    metrics: Site, prometheus: Prometheus, installed: Database
) -> None:
    wait_for(lambda: prometheus.query("pgtrickle_workers"))
    add_refreshes(installed)
    wait_for(lambda: prometheus.query("sum(pgtrickle_refresh_errors_total) == 3"))
    wait_for(lambda: len(prometheus.query("pgtrickle_refreshes_total[5m]")[0]["values"]) > 1)
    (target,) = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert len(DASHBOARDS) == 2
    for dashboard in DASHBOARDS:
        # It raises when Prometheus refuses one.
        assert [text for text in queries(dashboard) if not prometheus.query(text)] == []
        offered = {
            name: prometheus.get(f"label/{label}/values", **{"match[]": metric})
            for name, (metric, label) in variables(dashboard).items()
        }
        expected = {"database": [installed.name], "table": ["bad", "good"]}
        assert offered == {name: expected[name] for name in offered}
        assert offered
    rules = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    wait_for(lambda: all(r["health"] == "ok" for g in prometheus.get("rules")["groups"] for r in g["rules"]))
    assert {r["name"] for r in rules} >= {"PgtrickleDown", "PgtrickleStreamTablesStopped"}
    wait_for(
        lambda: "PgtrickleStreamTablesStopped" in {a["labels"]["alertname"] for a in prometheus.get("alerts")["alerts"]}
    )


def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            if condition():
                return
        except (OSError, IndexError):
            pass  # it is starting
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_promtool_accepts_the_rules_and_their_tests() -> None:
    program = require_program("promtool", "prometheus")
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        done = subprocess.run(
            [program, *command], cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_exposition(metrics: Site, installed: Database) -> None:
    program = require_program("promtool", "prometheus")
    add_refreshes(installed)
    metrics.observer.read(0.0)
    text = metrics.ask("/metrics", headers={"authorization": f"Bearer {TOKEN}"}).text
    done = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert done.stdout + done.stderr == "", done
