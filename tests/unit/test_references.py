from __future__ import annotations

import pytest

from pgtrickle.errors import DefinitionError
from pgtrickle.pipeline.text.references import reference_at, references_to

KEYWORDS = frozenset({"WHERE", "LEFT", "JOIN", "ON", "CROSS", "GROUP", "ORDER", "UNION", "LIMIT"})


def replaced(text: str, name: str = "m") -> str:
    return reference_at(text, text.index("crm"), KEYWORDS).replaced(text, "s", name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM crm.public.t", 'SELECT * FROM "s"."m" AS "t"'),
        ("SELECT * FROM crm.public.t AS x", 'SELECT * FROM "s"."m" AS x'),
        ("SELECT * FROM crm.public.t x WHERE x.a", 'SELECT * FROM "s"."m" x WHERE x.a'),
        ("SELECT * FROM crm.public.t WHERE a", 'SELECT * FROM "s"."m" AS "t" WHERE a'),
        ("SELECT * FROM crm.public.t LEFT JOIN b ON true", 'SELECT * FROM "s"."m" AS "t" LEFT JOIN b ON true'),
        ("SELECT * FROM crm.public.t, b", 'SELECT * FROM "s"."m" AS "t", b'),
        ("(TABLE crm.public.t)", '(TABLE "s"."m")'),
        ("SELECT * FROM crm . public /* c */ . t", 'SELECT * FROM "s"."m" AS "t"'),
    ],
)
def test_a_name_of_three_parts_is_replaced(text: str, expected: str) -> None:
    assert replaced(text) == expected


def test_odd_names_keep_theirs_as_an_alias() -> None:
    text = 'SELECT * FROM "a;b"."s""q"."T x"'
    found = reference_at(text, 14, KEYWORDS)
    assert found.parts == ("a;b", 's"q', "T x")
    assert found.replaced(text, "s", "m") == 'SELECT * FROM "s"."m" AS "T x"'


def test_names_are_folded_as_postgresql_does() -> None:
    assert reference_at("SELECT * FROM CRM.Public.T", 14, KEYWORDS).parts == ("crm", "public", "t")


def test_what_is_not_such_a_name_is_refused() -> None:
    for text in ("SELECT a.b.c(1)", "SELECT a.b.c.d", "SELECT a.b"):
        with pytest.raises(DefinitionError):
            reference_at(text, 7, KEYWORDS)


def test_references_in_a_deparsed_text() -> None:
    text = " SELECT t.a FROM (f.t JOIN f.t x ON t.a = x.a) WHERE EXISTS (SELECT 1 FROM f.t, f.u)"
    found = references_to(text, ("f", "t"), KEYWORDS)
    for reference in found:
        text = reference.replaced(text, "s", "m")
    assert text == (
        ' SELECT t.a FROM ("s"."m" AS "t" JOIN "s"."m" x ON t.a = x.a) WHERE EXISTS (SELECT 1 FROM "s"."m" AS "t", f.u)'
    )


def test_a_relation_that_keeps_its_name_needs_no_alias() -> None:
    text = "SELECT t.a FROM f.t"
    (place,) = references_to(text, ("f", "t"), KEYWORDS)
    assert place.replaced(text, "s", "t", with_alias=False) == 'SELECT t.a FROM "s"."t"'
    assert place.replaced(text, "db", "s", "u") == 'SELECT t.a FROM "db"."s"."u" AS "t"'
