"""A template database with the data at scale 0.01, loaded once per run."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.conftest import Database, create_database
from tests.line import Line
from tests.spark.conftest import make_line
from tests.tpch.database import generate, load

__all__ = ["make_line"]

SCALE = 0.01
TEMPLATE = "template_tpch"


@pytest.fixture(scope="session")
def tpch_template(
    pg_server: EmbeddedPostgres, installed_template: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    folder = tmp_path_factory.mktemp("tpch")
    generate(folder, SCALE)
    database = create_database(pg_server, TEMPLATE, template=installed_template)
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        load(connection, folder)
    return TEMPLATE


@pytest.fixture
def tpch(make_database: Callable[..., Database], make_line: Callable[..., Line], tpch_template: str) -> Line:
    """A line over a fresh copy of the data."""
    return make_line(make_database(template=tpch_template))
