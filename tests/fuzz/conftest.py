"""The engine of the Spark tests, and fresh databases over it."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.embedded import EmbeddedPostgres
from tests.fuzz.lines import Lines
from tests.spark.conftest import engine

__all__ = ["engine"]


@pytest.fixture
def lines(pg_server: EmbeddedPostgres, installed_template: str, engine: SparkEngine) -> Lines:
    return Lines(pg_server, installed_template, engine)
