"""The line over a fresh database and the run's one Spark engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
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
