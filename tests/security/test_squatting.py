"""Somebody who may create schemas takes the names of ours before pgtrickle is installed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgtrickle.db.connect import connect
from pgtrickle.db.service import install_as_service
from pgtrickle.errors import PgtrickleError
from tests.conftest import Database

TAKEN = (
    "CREATE SCHEMA {schema} AUTHORIZATION squatter; GRANT USAGE, CREATE ON SCHEMA {schema} TO PUBLIC; "
    "SET ROLE squatter; "
    "CREATE TABLE {schema}.log (who name); GRANT ALL ON {schema}.log TO PUBLIC; "
    "CREATE TABLE {schema}.{table}; GRANT ALL ON {schema}.{table_name} TO PUBLIC; "
    "CREATE FUNCTION {schema}.fire() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RESET ROLE; INSERT INTO {schema}.log VALUES (current_user); RETURN NEW; END $$; "
    "CREATE TRIGGER a BEFORE INSERT OR UPDATE OR DELETE ON {schema}.{table_name} FOR EACH STATEMENT "
    "EXECUTE FUNCTION {schema}.fire(); RESET ROLE"
)


@pytest.mark.parametrize("by_superuser", [True, False])
@pytest.mark.parametrize(
    ("schema", "table"),
    [
        ("pgtrickle", "pgt_schema_version (version int, installed_at timestamptz, package_version text)"),
        ("pgtrickle", "pgt_options (name text)"),
        ("pgtrickle_changes", "caller_key (one bool PRIMARY KEY, key bytea)"),
    ],
)
def test_schemas_of_others_are_not_taken_over(
    make_database: Callable[..., Database], schema: str, table: str, by_superuser: bool
) -> None:
    database = make_database()
    database.superuser_sql("DROP ROLE IF EXISTS squatter; CREATE ROLE squatter")
    name = table.split(" ", 1)[0]
    database.superuser_sql(TAKEN.format(schema=schema, table=table, table_name=name))
    dsn = database.superuser_dsn if by_superuser else database.dsn
    with connect(dsn, role="install", autocommit=True, as_service=False) as conn, pytest.raises(PgtrickleError):
        install_as_service(conn)
    assert database.superuser_sql(f"SELECT who FROM {schema}.log") == []
    database.superuser_sql("DROP OWNED BY squatter CASCADE; DROP ROLE squatter")
