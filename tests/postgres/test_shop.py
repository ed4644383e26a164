"""The demo's shop: its SQL loads, and its workload writes what it says."""

from __future__ import annotations

import random
import time

from pgtrickle.demo.run import example
from pgtrickle.demo.workload import KINDS, Workload
from tests.conftest import Database


def test_shop_loads_and_its_stream_tables_are_accepted_as_differential(installed: Database) -> None:
    for name in ("schema.sql", "data.sql", "stream_tables.sql"):
        installed.sql(example(name))
    assert installed.sql("SELECT count(*) FROM order_items") == [(50_000,)]
    assert installed.sql("SELECT count(*) > 0 FROM customers WHERE country IS NULL") == [(True,)]
    modes = installed.sql("SELECT effective_refresh_mode, count(*) FROM pgtrickle.pgt_status() GROUP BY 1")
    assert modes == [("DIFFERENTIAL", 6)]


def test_heavy_stream_table_of_the_shop_is_full_and_for_spark(installed: Database) -> None:
    for name in ("schema.sql", "data.sql", "stream_tables.sql", "heavy.sql"):
        installed.sql(example(name))
    heavy = "SELECT refresh_mode, engine FROM pgtrickle.pgt_status() WHERE name = 'public.bought_together'"
    assert installed.sql(heavy) == [("FULL", "spark")]


def test_workload_commits_rolls_back_and_stops(database: Database) -> None:
    for name in ("schema.sql", "data.sql"):
        database.sql(example(name))
    workload = Workload(database.dsn, rng=random.Random(1), pause_s=0)
    workload.start()
    deadline = time.monotonic() + 120
    while workload.tally.rolled_back < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    workload.stop()
    assert workload.tally.error is None
    assert workload.tally.committed > 0
    assert workload.tally.rolled_back >= 3
    assert workload.tally.changed_rows > 0


def test_every_kind_of_transaction_has_a_weight() -> None:
    assert all(weight > 0 for _, weight in KINDS)
