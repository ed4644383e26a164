"""How columns are stored for Spark. That the stored forms give PostgreSQL's results: tests/spark/test_relational.py."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.relational import stored_column


def numeric(precision: int, scale: int) -> SqlType:
    return SqlType(1700, ((precision << 16) | (scale & 0x7FF)) + 4, f"numeric({precision},{scale})", 1700, "b")


@pytest.mark.parametrize(
    ("type_", "ddl", "name"),
    [
        (SqlType(16, -1, "boolean", 16, "b"), "boolean", "bool"),
        (SqlType(21, -1, "smallint", 21, "b"), "smallint", "int2"),
        (SqlType(20, -1, "bigint", 20, "b"), "bigint", "int8"),
        (SqlType(700, -1, "real", 700, "b"), "float", "float4"),
        (SqlType(701, -1, "double precision", 701, "b"), "double", "float8"),
        (numeric(10, 2), "decimal(10,2)", "numeric"),
        (numeric(38, 0), "decimal(38,0)", "numeric"),
        (numeric(3, 5), "decimal(5,5)", "numeric"),
        (numeric(39, 2), "string", "numeric"),
        (numeric(4, -2), "string", "numeric"),
        (SqlType(1700, -1, "numeric", 1700, "b"), "string", "numeric"),
        (SqlType(1043, 14, "character varying(10)", 1043, "b"), "string", "varchar"),
        (SqlType(1042, 14, "character(10)", 1042, "b"), "string", "bpchar"),
        (SqlType(1042, -1, "character", 1042, "b"), "string", None),
        (SqlType(1082, -1, "date", 1082, "b"), "int", "date"),
        (SqlType(1114, -1, "timestamp without time zone", 1114, "b"), "bigint", "timestamp"),
        (SqlType(1184, -1, "timestamp with time zone", 1184, "b"), "bigint", "timestamptz"),
        (SqlType(17, -1, "bytea", 17, "b"), "string", "bytea"),
        (SqlType(2950, -1, "uuid", 2950, "b"), "string", "uuid"),
        (SqlType(1007, -1, "integer[]", 1007, "b", 23), "string", "opaque"),
        (SqlType(3802, -1, "jsonb", 3802, "b"), "string", "jsonb"),
        (SqlType(114, -1, "json", 114, "b"), "string", None),
        (SqlType(20001, -1, "mood", 20001, "e"), "string", "opaque"),
        (SqlType(20002, -1, "positive", 23, "b"), "int", "int4"),  # a domain
    ],
)
def test_each_type_has_one_stored_form(type_: SqlType, ddl: str, name: str | None) -> None:
    stored = stored_column(type_)
    assert (stored.ddl, stored.type and stored.type.name) == (ddl, name)
    assert stored.input("x").native == ddl.startswith("decimal")


def test_a_numeric_that_has_held_nan_is_stored_as_text() -> None:
    stored = stored_column(numeric(10, 2), as_text=True)
    assert (stored.ddl, stored.is_decimal) == ("string", False)
    assert stored.read("x") == "(x)::text"
    assert stored_column(numeric(10, 2)).read("x") == "(x)"


def test_user_defined_types_are_read_by_their_output_function() -> None:
    stored = stored_column(SqlType(20003, -1, "point3", 20003, "c"))
    assert "concat" in stored.read("x")
    assert stored.input("x").label == "point3"
