"""What tests of the status functions share."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.conftest import Database


@pytest.fixture
def db(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int, b int)")
    return installed


@pytest.fixture
def scheduler(db: Database) -> psycopg.Connection[Any]:
    """What the status functions take for a running scheduler."""
    return db.connect(application_name="pgtrickle/scheduler")
