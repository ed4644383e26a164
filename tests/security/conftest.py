"""Servers of two versions, pgtrickle installed by two kinds of roles, and all attempts made once in each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgtrickle.pipeline.spark import SparkEngine
from pgtrickle.runtime.embedded import EmbeddedPostgres
from tests.security import postgres15
from tests.security.arena import Arena
from tests.security.attempts import ATTEMPTS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each attempt in each of the arenas that it is made in; `VERSION` of the module says of which."""
    if "arena" not in metafunc.fixturenames:
        return
    version = metafunc.module.VERSION
    roles = ("superuser", "ordinary")
    if "name" not in metafunc.fixturenames:
        metafunc.parametrize("arena", roles, indirect=True, scope="module")
        return
    made = [(who, a.name) for who in roles for a in ATTEMPTS if a.is_made(version, f"{version}-{who}")]
    metafunc.parametrize(("arena", "name"), made, indirect=["arena"], scope="module")


@pytest.fixture(scope="module")
def arena(request: pytest.FixtureRequest, engine: SparkEngine) -> Iterator[Arena]:
    """`VERSION` of the module says of which."""
    version, who = request.module.VERSION, request.param
    reason = postgres15.why_not() if version == 15 else None
    if reason is not None:
        pytest.skip(reason)
    home = postgres15.HOME if version == 15 else None
    settings = {"max_connections": "300", "max_prepared_transactions": "5"}
    with EmbeddedPostgres.create(durable=False, home=home, settings=settings) as server:
        arena = Arena(server, engine, by_superuser=who == "superuser")
        try:
            arena.play(ATTEMPTS)
            yield arena
        finally:
            arena.close()
