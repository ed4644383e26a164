"""Statements that people already have run as they stand, with the columns that they expect."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import connect
from tests.conftest import Database

STATEMENTS = re.findall(
    r"^-- columns: (.*)\n((?:(?!--).+\n)+?)(?=\n|\Z)", Path(__file__).with_name("seeds.sql").read_text("utf-8"), re.M
)


@pytest.fixture
def shop(installed: Database) -> Database:
    installed.sql("CREATE TABLE t (a int); SELECT pgtrickle.create_stream_table('s', 'SELECT a FROM t')")
    with connect(installed.dsn, role="test", autocommit=True) as conn:
        ((relid,),) = installed.sql("SELECT 't'::regclass::oid::int8")
        ensure_capture(conn, relid, [1])
    installed.sql("INSERT INTO t VALUES (1)")
    return installed


def columns(connection: psycopg.Connection[Any], text: str) -> list[str]:
    return [c.name for c in connection.execute(text).description or []]


@pytest.mark.parametrize(("expected", "text"), STATEMENTS, ids=lambda v: v.split("\n")[0][:60])
def test_statement_runs_verbatim(shop: Database, expected: str, text: str) -> None:
    *names, last = expected.split(", ")
    found = columns(shop.connect(), text)
    assert found[: len(names)] == names if last == "..." else found == [*names, last]


def test_all_statements_were_read() -> None:
    assert len(STATEMENTS) == Path(__file__).with_name("seeds.sql").read_text("utf-8").count("\n-- columns:")


def test_statements_run_with_usage_alone(
    shop: Database, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    """Reading ones: asking for a refresh is the creator's."""
    other = make_role(shop)
    for _, text in STATEMENTS:
        if "refresh('s')" in text or "refresh_stream_table" in text:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="must be the creator"):
                other.execute(text)
        else:
            other.execute(text)


def test_buffers_are_where_scans_expect_them(shop: Database) -> None:
    ((relid,),) = shop.sql("SELECT 't'::regclass::oid::int8")
    ((count, lsn),) = shop.sql(f"SELECT COUNT(*), MAX(lsn) FROM pgtrickle_changes.changes_{relid}")
    assert count == 1
    assert lsn is not None
