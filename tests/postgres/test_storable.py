"""Expressions that replicas store: PostgreSQL must mark all of them IMMUTABLE; and STRICT, because the computed column
of a row that an outer join extends by NULLs is NULL."""

from __future__ import annotations

from pgtrickle.pipeline.relational.storable import FUNCTIONS, OPERATORS
from tests.conftest import Database


def test_functions_are_immutable_whatever_follows_the_first_argument(database: Database) -> None:
    for (name, type_), result in FUNCTIONS.items():
        rows = database.sql(
            "SELECT provolatile::text, proisstrict, prorettype::regtype::text, proretset FROM pg_proc "
            "WHERE pronamespace = 'pg_catalog'::regnamespace AND proname = %s AND proargtypes[0] = %s::regtype",
            name,
            type_,
        )
        assert set(rows) == {("i", True, result, False)}, name


def test_operators_are_immutable_whatever_the_type_on_the_right(database: Database) -> None:
    for (type_, name), result in OPERATORS.items():
        rows = database.sql(
            "SELECT p.provolatile::text, p.proisstrict, o.oprresult::regtype::text "
            "FROM pg_operator AS o JOIN pg_proc AS p ON p.oid = o.oprcode "
            "WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = %s AND o.oprleft = %s::regtype",
            name,
            type_,
        )
        assert set(rows) == {("i", True, result)}, name
