"""Two replicas of the control plane behind health checks, as Kubernetes runs them: one is ready, the other takes
over."""

from __future__ import annotations

from collections.abc import Callable
from urllib.error import HTTPError
from urllib.request import urlopen

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.servers.server_process import free_port
from tests.fleet.conftest import Run, make_small, open_jobs, wait_for


def status(port: int, path: str) -> int:
    """0: nobody listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return int(response.status)
    except HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_replicas_hand_over_when_one_ends_and_when_one_is_killed(
    own_server: EmbeddedPostgres, make_run: Callable[..., Run], spark_url: str
) -> None:
    small = make_small(own_server, "small")
    ports = free_port(), free_port()
    first, second = replicas = [make_run(small.database.dsn, spark_url) for _ in ports]
    first.start(http=f"127.0.0.1:{ports[0]}")
    wait_for(lambda: status(ports[0], "/readyz") == 200)
    second.start(http=f"127.0.0.1:{ports[1]}")
    wait_for(lambda: status(ports[1], "/healthz") == 200)
    wait_for(lambda: "this one is on standby" in second.text())
    assert [status(port, "/readyz") for port in ports] == [200, 503]  # traffic of the web UI goes to the active one
    small.seconds_to_refresh()
    assert first.end()[0] == 0  # as a rolling update ends it
    wait_for(lambda: status(ports[1], "/readyz") == 200)
    small.seconds_to_refresh()
    first.start(http=f"127.0.0.1:{ports[0]}")
    wait_for(lambda: first.text().count("this one is on standby") == 1)
    wait_for(lambda: status(ports[0], "/readyz") == 503)
    second.kill()  # as a node that is lost
    wait_for(lambda: status(ports[0], "/readyz") == 200)
    small.seconds_to_refresh()
    assert small.sql("SELECT count(DISTINCT scheduler_pid) FROM pgtrickle.pgt_scheduler_jobs") == [(3,)]
    assert [run.traceback() for run in replicas] == ["", ""]
    assert open_jobs(small.sql) == []
