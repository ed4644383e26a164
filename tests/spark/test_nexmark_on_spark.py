"""Queries of the Nexmark benchmark (auctions, bids, persons) compiled to DataFrames: the same rows as PostgreSQL's.

Their windows of time are bins: date_bin and date_trunc of the event's time, moved by constant intervals.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pgtrickle.pipeline.engine.spark import BULK_CONF
from tests.conftest import Database
from tests.spark.relational import Both

pytestmark = pytest.mark.timeout(300)

TABLES = """
CREATE TABLE person (id bigint PRIMARY KEY, name text, email text, city text, state text, date_time timestamp,
                     profile jsonb);
CREATE TABLE auction (id bigint PRIMARY KEY, item_name text, initial_bid bigint, reserve bigint, date_time timestamp,
                      expires timestamp, seller bigint, category bigint);
CREATE TABLE bid (auction bigint, bidder bigint, price bigint, channel text, url text, date_time timestamp,
                  extra text);
CREATE TABLE side_input (key bigint, value text);
INSERT INTO side_input SELECT i, 'side ' || i FROM generate_series(0, 9) i;
"""
START = datetime(2024, 2, 28, 23, 30)
CHANNELS = ("apple", "Google", "facebook", "baidu", "channel-17")


def _queries() -> dict[str, str]:
    text = Path(__file__).with_name("nexmark.sql").read_text()
    sections = re.split(r"^-- (q\d+)\b.*$", text, flags=re.MULTILINE)
    return dict(zip(sections[1::2], sections[2::2], strict=True))


QUERIES = _queries()


def load(connection: Any, events: int) -> None:
    """One person, three auctions and 46 bids in fifty events, as Nexmark has them; some bids name no auction."""
    made = random.Random(7)
    connection.execute(TABLES)
    rows: dict[str, list[tuple[Any, ...]]] = {"person": [], "auction": [], "bid": []}
    for n in range(events):
        at = START + timedelta(milliseconds=n * 2300 + made.randrange(900))
        persons, auctions = len(rows["person"]) + 1, len(rows["auction"]) + 1
        if n % 50 == 0:
            state = made.choice(("OR", "ID", "CA", "WA", None))
            profile = f'{{"age": {made.randrange(18, 80)}, "tags": ["t{n % 3}"]}}'
            rows["person"].append((n, f"Person {n}", f"p{n}@example.com", "Town", state, at, profile))
        elif n % 50 < 4:
            low = made.randrange(1, 500)
            ends = at + timedelta(seconds=made.randrange(1, 400))
            seller = made.randrange(persons) * 50
            rows["auction"].append((n, f"item {n}", low, low + 50, at, ends, seller, 10 + made.randrange(5)))
        else:
            auction = rows["auction"][made.randrange(auctions - 1)][0] if auctions > 1 else None
            url = f"https://www.nexmark.com/{made.choice('abc')}/{made.choice('xyz')}/item.htm?query=1&channel_id={n}"
            price = made.choice((made.randrange(100, 20_000_000), 5000))
            bidder = made.randrange(persons) * 50
            rows["bid"].append((auction, bidder, price, made.choice(CHANNELS), url, at, made.choice(("cc", "abc", ""))))
    for table, found in rows.items():
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in found:
                copy.write_row(row)


@pytest.fixture(scope="module")
def session(spark_url: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_url).create()
    for name, value in BULK_CONF.items():
        session.conf.set(name, value)
    yield session
    session.stop()


def test_all_queries_give_what_postgresql_gives(database: Database, session: Any) -> None:
    connection = database.connect()
    load(connection, 1000)
    both = Both(connection, session, native=True, computes=True)
    wrong = []
    for name, query in QUERIES.items():
        try:
            compiled = both.check(query)
            assert both.given(compiled), "no rows"
        except (AssertionError, Exception) as error:  # noqa: BLE001 - all are told at once
            wrong.append(f"{name}: {type(error).__name__} {str(error)[:600]}")
    assert not wrong, "\n\n".join(wrong)
