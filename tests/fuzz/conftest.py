"""Fresh databases for random queries."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fuzz.lines import Lines


@pytest.fixture
def lines(pg_server: EmbeddedPostgres, installed_template: str, engine: SparkEngine) -> Lines:
    return Lines(pg_server, installed_template, engine)
