# ruff: noqa: E501 - a query is easier to read on one line
"""Tokens keep their places, so that text can be cut and put back unchanged."""

from __future__ import annotations

import pytest

from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.pipeline.text.tokens import (
    Cursor,
    identifier,
    strip_parentheses,
    token_keys,
    tokenize,
    without_constants,
    without_names,
)

TEXTS = (
    "SELECT a FROM b",
    """SELECT "a""b", 'it''s', 'back\\slash', '', 'FROM' FROM "s"."T x" """,
    "SELECT (a ->> 'k'::text) #>> '{x}'::text[], a @> b, a <@ b, a && b, a -|- b, a ~* 'x', a !~~ 'y', a ?| c FROM t",
    "SELECT 1.5e10, .5, 1e-3, 0x1F, B'101', U&'\\00e9' FROM t",
    "SELECT (x)::character varying(10), y::timestamp(3) without time zone, '{}'::text[] FROM t",
    "SELECT größe, naïve_ü, 名 FROM tabelle",
    "SELECT a[1:2], ARRAY[1, 2][1], (c).f FROM t WHERE ((a = ANY (b)) AND (NOT c))",
    "SELECT a AT TIME ZONE 'UTC'::text, EXTRACT(year FROM b), a OPERATOR(public.+) b FROM t",
)


@pytest.mark.parametrize("sql", TEXTS)
def test_tokens_cover_the_text_but_for_blanks(sql: str) -> None:
    tokens = tokenize(sql)
    rest = sql
    for token in reversed(tokens):
        assert sql[token.start : token.end].strip()
        rest = rest[: token.start] + rest[token.end :]
    assert rest.strip() == ""
    assert Cursor(sql).text(0, len(tokens)) == sql.strip()


def test_keywords_compare_in_upper_case_and_quoted_names_as_written() -> None:
    assert token_keys(tokenize("select \"Select\", 'x Y' from T"), 0, 6) == (
        "SELECT",
        '"Select"',
        ",",
        "'x Y'",
        "FROM",
        "T",
    )


@pytest.mark.parametrize(("written", "stored"), [("Abc", "abc"), ('"Abc"', "Abc"), ('"a""b"', 'a"b')])
def test_identifier_is_the_name_that_postgresql_stores(written: str, stored: str) -> None:
    assert identifier(written) == stored
    assert identifier(quote_ident(stored)) == stored


def test_strings_with_parentheses_and_commas_do_not_count() -> None:
    cursor = Cursor("f('(,', \"a)\", (b)) , c FROM t")
    start, stop = cursor.until(",", "FROM")
    assert cursor.text(start, stop) == "f('(,', \"a)\", (b))"
    assert cursor.peek() == ","


def test_until_stops_where_a_parenthesis_closes_what_it_did_not_open() -> None:
    cursor = Cursor("a + b) FROM t")
    assert cursor.text(*cursor.until("FROM")) == "a + b"


@pytest.mark.parametrize(
    ("text", "inner"), [("((a + b))", "a + b"), ("(a) + (b)", "(a) + (b)"), ("a", "a"), ("((a)::int)", "(a)::int")]
)
def test_enclosing_parentheses_are_dropped(text: str, inner: str) -> None:
    tokens = tokenize(text)
    assert Cursor(text).text(*strip_parentheses(tokens, 0, len(tokens))) == inner


def test_unbalanced_text_is_refused() -> None:
    with pytest.raises(NotDifferentiableError, match="unbalanced"):
        Cursor("(a").closing(0)
    with pytest.raises(NotDifferentiableError, match="could not be split"):
        tokenize("SELECT 'open")


def test_cursor_says_what_it_expected() -> None:
    with pytest.raises(NotDifferentiableError, match="expected FROM but found the end"):
        Cursor("").expect("FROM")
    with pytest.raises(NotDifferentiableError, match="ends where more was expected"):
        Cursor("").next()


def test_texts_that_differ_in_names_alone_are_the_same_without_them() -> None:
    one = without_names(
        "SELECT t.a, sum(t.b) AS s FROM (SELECT x.a, x.b FROM public.t AS x) AS t WHERE t.c = 'it.s' GROUP BY t.a"
    )
    other = without_names(
        'SELECT "T 2".a, sum("T 2".d) AS s FROM (SELECT x.a, x.d FROM "O".told AS x) AS "T 2" WHERE "T 2".c = \'it.s\' GROUP BY "T 2".a'
    )
    assert one == other
    assert without_names('SELECT "select".a FROM public."select"') == without_names("SELECT t.a FROM public.t")
    one_table = 'SELECT a FROM (SELECT t."a" FROM "public"."{0}" AS t) AS {0}'
    assert without_names(one_table.format("t2")) == without_names(one_table.format("told"))
    for changed in ("max(t.b)", "sum(DISTINCT t.b)", "sum(t.b + 1)"):
        assert one != without_names(
            f"SELECT t.a, {changed} AS s FROM (SELECT x.a, x.b FROM public.t AS x) AS t WHERE t.c = 'it.s' GROUP BY t.a"
        )
    assert without_names("no 'end") == "no 'end"


@pytest.mark.parametrize(
    ("sql", "without"),
    [
        ("SELECT 'a'::text, E'b\\'c', $q$d$q$", "SELECT  NULL ::text,  NULL ,  NULL "),
        # The grammar knows these types. It requires a constant after them.
        ("interval '1 day' + time '10:00'", "interval '1 day' + time '10:00'"),
        ("a.at AT TIME ZONE 'UTC'", "a.at AT TIME ZONE 'UTC'"),
        # These are looked up in the search_path, where another type may have the name.
        ("date '(2020-01-01)' < timestamptz'2020-01-01'", " NULL::DATE  <  NULL::TIMESTAMPTZ "),
        ("timetz '10:00'", " NULL::TIMETZ "),
        ("evil.date '(x)', \"date\" '(x)', text '(x)'", 'evil.date  NULL , "date"  NULL , text  NULL '),
        ('"it\'s"', '"it\'s"'),
    ],
)
def test_constants_are_replaced_by_null(sql: str, without: str) -> None:
    assert without_constants(sql) == without
