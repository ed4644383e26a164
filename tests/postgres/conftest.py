"""What tests of the status functions share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.line import Line


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int, b int)")
    return installed


@pytest.fixture
def scheduler(db: Database) -> psycopg.Connection[Any]:
    """What the status functions take for a running scheduler."""
    return db.connect(application_name="pgtrickle/scheduler")


@pytest.fixture
def sparkless(installed: Database) -> Iterator[Line]:
    """The control plane of one database, for refreshes that Spark has no part in."""

    def no_spark() -> str:
        raise AssertionError("Spark is not needed")

    engine = SparkEngine(no_spark)
    line = Line(installed.dsn, engine)
    yield line
    line.close()
    engine.close()
