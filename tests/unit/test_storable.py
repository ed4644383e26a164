"""Which expressions a replica may store. That they are immutable and cannot fail: tests/postgres/test_storable.py."""

from __future__ import annotations

import pytest

from pgtrickle.pipeline.relational.storable import storable

TYPES = {"name": "text", "doc": "jsonb", 'a "b"': "text"}


@pytest.mark.parametrize(
    ("expression", "column"),
    [
        ("\"name\" ~ '^a'::text", "name"),
        ("(\"name\")::text !~* 'x''y'::text", "name"),
        ('"a ""b""" ~~* \'x%\'::text', 'a "b"'),
        ("\"doc\" ->> 'k'::text", "doc"),
        ("(\"doc\" -> 'k'::text) ->> 0", "doc"),
        ("\"doc\" -> 'k'::text ->> '-1'::integer", "doc"),
        ("\"doc\" #>> '{a,b}'::text[]", "doc"),
        ('"doc" @> \'{"a": [1]}\'::jsonb', "doc"),
        ("SUBSTRING(\"name\" FROM 'a(b)'::text)", "name"),
        ('"substring"(("name")::text, \'a(b)\'::text)', "name"),
        ("regexp_replace(lower(\"name\"), 'a'::text, 'b'::text, 'g'::text)", "name"),
        ("(\"doc\" ->> 'k'::text) ~ '^a'::text", "doc"),
    ],
)
def test_expressions_that_cannot_fail_are_stored(expression: str, column: str) -> None:
    found = storable(expression, TYPES)
    assert found is not None
    assert found.column == column


@pytest.mark.parametrize(
    "expression",
    [
        '("name")::integer',  # fails for some rows
        '"doc" ->> "name"',  # reads two columns
        '"name" ~ "name"',  # a pattern that a row contains may be wrong
        "\"name\" ~ lower('A'::text)",
        "\"other\" ~ 'a'::text",  # of another type, or collation
        "\"doc\" ~ 'a'::text",  # an operator that the type does not have, so it is somebody's own
        "\"name\" OPERATOR(public.~) 'a'::text",
        'public.lower("name")',
        'jsonb_array_length("doc")',
        'my_function("name")',
        "\"name\" ~ 'a'::text AND true",
        "\"name\" ~ 'a'::public.text",
        '"name" COLLATE "C" ~ \'a\'::text',
        "\"doc\" ->> 'k'::regclass",
        'lower("name"',
        "lower('A'::text)",
        "\"name\" ~ 'a'::text) --",
        "",
    ],
)
def test_others_are_not(expression: str) -> None:
    assert storable(expression, TYPES) is None
