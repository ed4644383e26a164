"""Which types have a text that decides equality, which have a number that orders them."""

from __future__ import annotations

import pytest

from pgtrickle.errors import NotDifferentiableError
from pgtrickle.pipeline.codec import SqlType, encoded, exact, key, numeric_scale, order


def typed(oid: int, *, name: str = "t", typmod: int = -1, kind: str = "b", element: int = 0) -> SqlType:
    return SqlType(oid, typmod, name, oid, kind, element)


def numeric(precision: int, scale: int) -> SqlType:
    return typed(1700, typmod=((precision << 16) | (scale & 0x7FF)) + 4)


@pytest.mark.parametrize("oid", [16, 20, 21, 23, 25, 1043, 1082, 1114, 1184, 2950, 17, 869, 3904])
def test_key_of_a_canonical_type_is_its_text(oid: int) -> None:
    assert key("q.k0", typed(oid)) == exact("q.k0", oid)


def test_character_is_a_key_only_with_a_length() -> None:
    assert key("q.k0", typed(1042, typmod=8)) == exact("q.k0", 1042)
    with pytest.raises(NotDifferentiableError):
        key("q.k0", typed(1042))


def test_key_of_a_number_has_one_text_per_value() -> None:
    assert key("x", typed(1700)) == "pg_catalog.trim_scale(x)::text"
    assert "+ 0::float8" in key("x", typed(701))
    assert "+ 0::float4" in key("x", typed(700))


def test_enum_and_arrays_of_canonical_types_are_keys() -> None:
    assert key("x", typed(70000, kind="e")) == exact("x", 70000)
    assert key("x", typed(1009, element=25)) == exact("x", 1009)


# timetz, interval, money, json, jsonb, tsvector, numrange, record, numeric[], bpchar[], float8[]
@pytest.mark.parametrize(
    ("oid", "element"),
    [(1266, 0), (1186, 0), (790, 0), (114, 0), (3802, 0), (3614, 0), (3906, 0), (2249, 0), (1231, 1700), (1014, 1042)],
)
def test_key_of_any_other_type_is_refused_by_name(oid: int, element: int) -> None:
    with pytest.raises(NotDifferentiableError, match="grouping by type odd is not maintained"):
        key("x", typed(oid, name="odd", element=element))


def test_key_looks_through_a_domain() -> None:
    domain = SqlType(80000, -1, "amount", 1700, "b")
    assert key("x", domain) == "pg_catalog.trim_scale(x)::text"


@pytest.mark.parametrize("oid", [20, 21, 23, 1700, 1082, 1114, 1184])
def test_ordered_types_have_a_number(oid: int) -> None:
    assert order("x", typed(oid)) is not None


@pytest.mark.parametrize("oid", [25, 1042, 700, 701, 16, 2950, 1186, 869])
def test_other_types_have_none(oid: int) -> None:
    assert order("x", typed(oid)) is None


def test_infinite_times_lie_beyond_every_finite_one() -> None:
    last_microsecond = 9223371331200000000  # of the year 294276, since 2000
    sql = str(order("x", typed(1184)))
    assert "isfinite" in sql
    assert "THEN 1e19" in sql
    assert "THEN -1e19" in sql
    assert last_microsecond < 10**19 < 10**20  # and it fits decimal(38,18)


def test_not_a_number_is_ordered_after_all_numbers_either_way() -> None:
    assert order("x", numeric(38, 30)) == "((x)::numeric)::text"
    assert order("x", numeric(38, 30), descending=True) == (
        "CASE WHEN (x) = 'NaN'::numeric THEN '-NaN' ELSE (-((x)::numeric))::text END"
    )
    assert order("x", typed(20), descending=True) == "(-((x)::numeric))::text"


def test_declared_scale_is_read_from_the_modifier() -> None:
    assert numeric_scale(numeric(10, 2).typmod) == 2
    assert numeric_scale(numeric(10, 0).typmod) == 0
    assert numeric_scale(-1) is None
    assert numeric_scale(numeric(5, -2).typmod) is None


def test_row_is_one_text() -> None:
    assert encoded(["a", "b"]) == "ARRAY[a, b]::text[]::text"
    assert encoded([]) == "ARRAY[]::text[]::text"
