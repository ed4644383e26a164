"""The line over a fresh database and the run's one Spark engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import BULK_CONF, SMALL_CONF, SparkEngine
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line


@pytest.fixture
def make_line(engine: SparkEngine) -> Iterator[Callable[..., Line]]:
    lines: list[Line] = []

    def make(database: Database, settings: Settings | None = None, origins: OriginSessions | None = None) -> Line:
        lines.append(Line(database.dsn, engine, settings, origins))
        return lines[-1]

    yield make
    for line in lines:
        line.close()


@pytest.fixture
def line(installed: Database, make_line: Callable[..., Line]) -> Line:
    return make_line(installed)


def _connected(spark_url: str, conf: Mapping[str, str]) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(spark_url).create()
    for name, value in conf.items():
        session.conf.set(name, value)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def interpreted(spark_url: str) -> Iterator[Any]:
    """Without code generation, as small refreshes run."""
    yield from _connected(spark_url, SMALL_CONF)


@pytest.fixture(scope="session")
def compiled(spark_url: str) -> Iterator[Any]:
    """With it, as large ones do: other code of Spark's."""
    yield from _connected(spark_url, BULK_CONF)


@pytest.fixture(scope="session")
def session(spark_url: str) -> Iterator[Any]:
    """For many queries over few rows. Compiling the code of each plan would take most of the time; queries of large
    tables are tested with it (tests/tpch, test_nexmark_on_spark.py)."""
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    yield from _connected(spark_url, BULK_CONF | interpreted | {"spark.sql.leafNodeDefaultParallelism": "1"})
