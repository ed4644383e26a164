"""A consumer outside, and a control plane that comes and goes."""

from __future__ import annotations

import json
from collections.abc import Callable

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.feeds import Consumer
from tests.fleet.conftest import Run, make_small, wait_for


def test_a_consumer_follows_and_is_named_when_it_does_not(
    own_server: EmbeddedPostgres, spark_url: str, make_run: Callable[..., Run]
) -> None:
    small = make_small(own_server, "small")
    small.sql("CREATE TABLE copy (k int, total bigint)")
    run = make_run(small.database.dsn, spark_url)
    run.start()
    consumer = Consumer(small.database.connect(), "s", "c", "copy")
    wait_for(consumer.apply)
    for number in range(1, 16):
        small.add(number)
        if number == 8:
            run.kill()
            run.start()
        wait_for(small.is_current)
        if number % 3:
            consumer.catch_up()
            consumer.check()
    consumer.catch_up()
    consumer.check()
    assert consumer.resets == 1

    listener = small.database.connect()
    listener.execute("LISTEN pg_trickle_alert")
    small.sql("SELECT pgtrickle.set_option('publication_lag_warn_lsn', '100')")
    small.add(100)
    wait_for(small.is_current)
    (alert,) = [json.loads(n.payload) for n in listener.notifies(timeout=120, stop_after=1)]
    assert (alert["event"], alert["table"], alert["subscriber"]) == ("subscriber_lag", "public.s", "c")
    assert "publish.subscriber_lag" in run.text()
    check = "SELECT severity FROM pgtrickle.health_check() WHERE check_name = 'subscribers'"
    wait_for(lambda: small.sql(check) == [("WARN",)])
    consumer.catch_up()
    assert small.sql(check) == [("OK",)]
    run.end()
    small.database.close()
