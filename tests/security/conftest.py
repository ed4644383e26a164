"""Servers of two versions, pgtrickle installed by two kinds of roles, and all attempts made once in each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.security import postgres15
from tests.security.arena import Arena
from tests.security.attempts import ATTEMPTS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per attempt that is made in the module's arena. Each arena has a module of its own: tests are shuffled
    within a module, and an arena that is a parameter would be built again at each change of the parameter."""
    if "name" in metafunc.fixturenames and "arena" in metafunc.fixturenames:
        version, installed_by = metafunc.module.VERSION, metafunc.module.INSTALLED_BY
        metafunc.parametrize("name", [a.name for a in ATTEMPTS if a.is_made(version, f"{version}-{installed_by}")])


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest, engine: SparkEngine) -> Iterator[Arena]:
    """`VERSION` and `INSTALLED_BY` of the module choose it."""
    version, installed_by = request.module.VERSION, request.module.INSTALLED_BY
    reason = postgres15.why_not() if version == 15 else None
    if reason is not None:
        pytest.skip(reason)
    home = postgres15.HOME if version == 15 else None
    settings = {"max_connections": "300", "max_prepared_transactions": "5"}
    with EmbeddedPostgres.create(durable=False, home=home, settings=settings) as server:
        arena = Arena(server, engine, by_superuser=installed_by == "superuser")
        try:
            arena.play(ATTEMPTS)
            yield arena
        finally:
            arena.close()
