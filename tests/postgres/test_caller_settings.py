"""Settings of whoever calls do not change what functions find, neither at once nor by what the session remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.conftest import Database


@pytest.mark.parametrize("is_off_then", [True, False])
def test_how_constants_are_read(
    installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]], is_off_then: bool
) -> None:
    installed.sql(
        "CREATE TABLE t (a int, owner name); ALTER TABLE t ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON t USING (owner = current_user); GRANT SELECT ON t TO PUBLIC; "
        "GRANT CREATE ON SCHEMA public TO PUBLIC"
    )
    role = make_role(installed)
    role.execute("SET standard_conforming_strings = off")
    role.execute("CREATE TEMPORARY VIEW v AS SELECT a, pg_catalog.lower('X') AS x FROM t")
    for found in ("_reads", "_functions_called", "_columns_read", "_rules"):
        row = role.execute(f"SELECT count(*) > 0 FROM pgtrickle.{found}('v'::regclass)").fetchone()
        assert row == (True,), found
    if not is_off_then:
        role.execute("SET standard_conforming_strings = on")
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row security"):
        role.execute("SELECT pgtrickle.create_stream_table('st', 'SELECT a FROM t')")


def test_all_that_read_patterns_are_pinned(installed: Database) -> None:
    found = installed.sql(
        "SELECT p.oid::regprocedure::text FROM pg_proc AS p WHERE p.pronamespace = 'pgtrickle'::regnamespace "
        "AND strpos(p.prosrc, chr(92)) > 0 AND p.proconfig IS NOT NULL "
        "AND NOT 'standard_conforming_strings=on' = ANY (p.proconfig)"
    )
    assert found == []
