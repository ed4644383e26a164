"""Values as texts: conversion to text and back, and types whose values have the same text."""

from __future__ import annotations

from collections.abc import Sequence

FIRST_OF_USERS = 16384  # the smallest oid of user-defined objects
_BPCHAR = 1042
# Types whose values are hashed, others by their texts: bool, integers, text, oid, float4, float8, character, character
# varying, date, timestamp, timestamptz, numeric, uuid. A hash function of a user-defined type is code of its owner.
HASHED = frozenset({16, 20, 21, 23, 25, 26, 700, 701, 1042, 1043, 1082, 1114, 1184, 1700, 2950})

_TEXTS = ("text", "character varying")
_INTEGERS = ("smallint", "integer", "bigint")


def as_text(sql: str, base: int) -> str:
    """A value as text. `base`: its type, domains resolved.

    A cast of a user-defined type may be arbitrary code of its owner: it would run with our privileges, and need not be
    the inverse of the cast back. Therefore the type's output function is used. The same holds for character: its cast
    to text removes trailing blanks, and a value without a length does not get them back.
    """
    if base == _BPCHAR:
        return f"pg_catalog.textin(pg_catalog.bpcharout({sql}))"
    if base < FIRST_OF_USERS:
        return f"{sql}::text"
    return f"CASE WHEN pg_catalog.num_nulls({sql}) = 0 THEN pg_catalog.concat({sql}) END"  # a row of NULLs is not NULL


def from_text(sql: str, type_name: str, base: int) -> str:
    """A text as a value; user-defined types by their input function: JSON conversion uses no casts."""
    if base < FIRST_OF_USERS:
        return f"{sql}::{type_name}"
    document = f"pg_catalog.jsonb_build_object('v', {sql})"
    return f"(SELECT r.v FROM pg_catalog.jsonb_to_record({document}) AS r(v {type_name}))"


def is_null(sql: str) -> str:
    """Whether a value itself is NULL. `IS NULL` also holds for a composite value whose fields are all NULL."""
    return f"({sql}) IS NOT DISTINCT FROM NULL"


def row_text(values: Sequence[str]) -> str:
    """Values of any types as one text, to distinguish rows: by their output functions. It is not converted back."""
    return f"ROW({', '.join(values)})::text"


def same_text(there: str, here: str) -> bool:
    """Whether every value of the type `there` has the same text in the type `here`."""
    if there == here:
        return True
    if here in _TEXTS:
        return there.startswith(_TEXTS)
    return there in _INTEGERS and here in _INTEGERS and _INTEGERS.index(there) < _INTEGERS.index(here)
