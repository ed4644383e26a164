"""The 22 queries of TPC-H compiled to DataFrames: the same rows as PostgreSQL's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pgtrickle.pipeline.engine.spark import BULK_CONF
from tests.conftest import Database
from tests.spark.relational import Both
from tests.tpch.database import QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def session(spark_url: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_url).create()
    for name, value in BULK_CONF.items():
        session.conf.set(name, value)
    yield session
    session.stop()


def test_all_queries_give_what_postgresql_gives(
    make_database: Callable[..., Database], tpch_template: str, session: Any
) -> None:
    """Numerics with a declared scale are decimals, as a columnar copy has them."""
    both = Both(make_database(template=tpch_template).connect(), session, native=True)
    for query in QUERIES.values():
        both.check(query)
