"""The translator's types and refusals; values are compared with PostgreSQL's in tests/spark/test_conformance.py."""

from __future__ import annotations

import pytest

from pgtrickle.errors import DefinitionError, InexactValueError
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.executor_errors import written
from pgtrickle.pipeline.expressions import Call, Constant, PgType, decode_value, failure, parse, pg_type, resolve
from pgtrickle.pipeline.expressions.listed import ENTRIES
from pgtrickle.pipeline.expressions.literals import constant
from pgtrickle.pipeline.expressions.times import Interval
from pgtrickle.pipeline.expressions.types import INT4, NUMERIC, TEXT, numeric

COLUMNS = {
    "s": PgType("int2"),
    "i": INT4,
    "l": PgType("int8"),
    "n": NUMERIC,
    "m": numeric(10, 2),
    "r": PgType("float4"),
    "f": PgType("float8"),
    "t": PgType("text", collation="C"),
    "u": PgType("text", collation="en_US"),
    "v": PgType("varchar", length=5, collation="en_US"),
    "w": PgType("text", collation="ci", deterministic=False),
    "c": PgType("bpchar", length=3, collation="C"),
    "b": PgType("bool"),
    "d": PgType("date"),
    "ts": PgType("timestamp"),
    "z": PgType("timestamptz"),
    "e": PgType("opaque", label="public.mood"),
    "k": PgType("opaque", label="inet"),
}


def typed(sql: str) -> PgType:
    return resolve(parse(sql), lambda _table, name: (name, COLUMNS[name])).type


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("(s + i)", "int4"),
        ("(i * l)", "int8"),
        ("(i + n)", "numeric"),
        ("(r + i)", "float8"),
        ("(r * r)", "float4"),
        ("(n * f)", "float8"),
        ("(s + 1)", "int4"),
        ("(l + 12345678901)", "int8"),
        ("COALESCE(r, l)", "float4"),
        ("COALESCE(t, v)", "text"),
        ("CASE WHEN b THEN i ELSE 1.5 END", "numeric"),
        ("CASE i WHEN 1 THEN 'a'::text END", "text"),
        ("NULLIF(s, l)", "int2"),
        ("NULLIF(i, n)", "numeric"),
        ("NULLIF(v, 'x'::text)", "text"),
        ("(d - d)", "int4"),
        ("(d + 1)", "date"),
        ("(d + '1 day'::interval)", "timestamp"),
        ("EXTRACT(year FROM ts)", "numeric"),
        ("date_part('year'::text, d)", "float8"),
        ("(v || c)", "text"),
        ("(i = ANY (ARRAY[1, 2]))", "bool"),
        ("((v)::text = ANY ((ARRAY['a'::character varying, 'b'::character varying])::text[]))", "bool"),
        ("(i <> ALL (ARRAY[1, 2]))", "bool"),
        ("(e = 'ok'::public.mood)", "bool"),
        ("(u = v)", "bool"),
        ("(c = 'ab'::bpchar)", "bool"),
        ("(c = (v)::bpchar)", "bool"),
        ('((u COLLATE "C") < t)', "bool"),
        ("(z + '01:00:00'::interval)", "timestamptz"),
        ("(t ~~ 'a\\%'::text)", "bool"),
        ("(t LIKE 'a!%' ESCAPE '!')", "bool"),
    ],
)
def test_the_result_has_postgresql_s_type(sql: str, name: str) -> None:
    assert typed(sql).name == name


@pytest.mark.parametrize(
    ("sql", "digits"),
    [
        ("(m + 1.125)", (9, 3, True)),
        ("(m * m)", (16, 4, True)),
        ("(n + m)", (21 - 1, 18, False)),
        ("round(n, 2)", (21, 2, True)),
        ("(m)::numeric(5,1)", (4, 1, True)),
        ("CASE WHEN b THEN 1.0 ELSE 1.00 END", (1, 2, False)),
        ("(i)::numeric", (10, 0, True)),
    ],
)
def test_the_digits_of_a_numeric_are_known(sql: str, digits: tuple[int, int, bool]) -> None:
    found = typed(sql)
    assert (found.whole, found.scale, found.fixed) == digits


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("md5(t)", "md5"),
        ("public.f(t)", "public"),
        ("(n ^ m)", "pow"),
        ("round(i)", "function round (int4)"),
        ("round(n, i)", "round of a variable"),
        ("(f)::numeric", "cast from float8 to numeric"),
        ("(f)::text", "cast from float8 to text"),
        ("(d)::text", "cast from date to text"),
        ("(ts)::timestamp with time zone", "cast from timestamp to timestamptz"),
        ("(ts < z)", "cast from timestamp to timestamptz"),
        ("EXTRACT(hour FROM z)", "TimeZone"),
        ("date_trunc('day'::text, z)", "TimeZone"),
        ("(z + '1 day'::interval)", "TimeZone"),
        ("(u < u)", "collation en_US"),
        ("('a'::text < 'b'::text)", "collation default"),
        ("(t < u)", "(conflicting)"),
        ("lower(u)", "collation en_US"),
        ("(w = t)", "not deterministic"),
        ("POSITION((t) IN (w))", "not deterministic"),
        ('(t COLLATE "en_US")', "en_US"),
        ("(e < e)", "operator < (public.mood, public.mood)"),
        ("(e = k)", "inet"),
        ("(t ~~ u)", "variable pattern"),
        ("(t ~~* 'a'::text)", "ILIKE"),
        ("(t ~ 'a'::text)", "regexp"),
        ("(i = t)", "(int4, text)"),
        ("(ts - ts)", "(timestamp, timestamp)"),
        ("(x.a OPERATOR(public.+) i)", "operator"),
        ("\"position\"(t, 'a'::text)", "position"),
        ("date_part('year', d)", "date_part"),
        ("'12 Jan 2024'::date", "12 Jan 2024"),
        ("'P1D'::interval", "P1D"),
        ("1e3", "1e3"),
        ("(i)::public.mood", "public.mood"),
        ("(ts)::timestamp(3) without time zone", "TIMESTAMP(3)"),
        ("(i IN (SELECT 1))", "list"),
        ("COALESCE(c, t)", "character(3)"),
        ("now()", "current_timestamp"),
    ],
)
def test_what_is_not_listed_is_refused_by_name(sql: str, names: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        typed(sql)
    assert names.lower() in refused.value.message.lower()


def test_implicit_casts_are_written_out() -> None:
    node = resolve(parse("(i = n)"), lambda _table, name: (name, COLUMNS[name]))
    assert isinstance(node, Call)
    assert isinstance(cast := node.arguments[0], Call)
    assert (cast.entry.kind, cast.type.name) == ("cast", "numeric")


@pytest.mark.parametrize(
    ("text", "type_name", "value"),
    [
        ("2000-01-02", "date", 1),
        ("-infinity", "date", -(2**31)),
        ("2000-01-01 00:00:01.5", "timestamp", 1_500_000),
        ("2000-01-01 01:00:00+01", "timestamptz", 0),
        ("1999-12-31 18:29:59.999999-05:30", "timestamptz", -1),
        ("1 year 2 mons -3 days +04:05:06.7", "interval", Interval(14, -3, 14_706_700_000)),
        ("-00:00:01", "interval", Interval(0, 0, -1_000_000)),
        ("-0.00", "numeric", "0.00"),
        ("007.50", "numeric", "7.50"),
        ("\\xDEAD", "bytea", "dead"),
        ("ab ", "bpchar", "ab"),
    ],
)
def test_constants_are_read_in_the_form_in_which_values_travel(text: str, type_name: str, value: object) -> None:
    type_ = NUMERIC if type_name == "numeric" else PgType(type_name)
    assert constant(text, type_)[0] == value


def test_a_constant_takes_the_type_of_what_it_is_compared_with() -> None:
    node = resolve(parse("(d = '2000-01-02')"), lambda _table, name: (name, COLUMNS[name]))
    assert isinstance(node, Call)
    assert node.arguments[1] == Constant(1, PgType("date"))


@pytest.mark.parametrize(
    ("type_", "name"),
    [
        (SqlType(23, -1, "integer", 23, "b"), "int4"),
        (SqlType(1700, -1, "numeric", 1700, "b"), "numeric"),
        (SqlType(1043, 9, "character varying(5)", 1043, "b"), "varchar"),
        (SqlType(90001, -1, "mood", 90001, "e"), "opaque"),
        (SqlType(90002, -1, "positive", 23, "b"), "int4"),
    ],
)
def test_columns_have_a_type_by_their_base(type_: SqlType, name: str) -> None:
    assert pg_type(type_).name == name


@pytest.mark.parametrize("type_", [SqlType(114, -1, "json", 114, "b"), SqlType(90003, -1, "citext", 90003, "b")])
def test_a_type_whose_text_does_not_decide_equality_is_refused(type_: SqlType) -> None:
    with pytest.raises(DefinitionError, match=type_.name):
        pg_type(type_)


def test_a_character_without_a_length_is_not_stored() -> None:
    with pytest.raises(DefinitionError, match="bpchar"):
        decode_value("x", PgType("bpchar"))


def test_failures_of_values_leave_spark_as_errors_of_ours() -> None:
    assert isinstance(failure("[DIVIDE_BY_ZERO] ..."), DefinitionError)
    assert isinstance(failure("[NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION] ..."), InexactValueError)
    assert isinstance(failure(f"[USER_RAISED_EXCEPTION] {written(InexactValueError('x'))}"), InexactValueError)
    assert failure("the server is gone") is None


def test_entries_name_themselves_once() -> None:
    assert len({(e.key, e.result) for e in ENTRIES}) == len(ENTRIES)


def test_what_travelled_is_turned_back_by_postgresql() -> None:
    assert decode_value("x", TEXT) == "(x)"
    assert "infinity" in decode_value("x", PgType("date"))
    assert decode_value("x", PgType("opaque", label="public.mood")) == "(x)::public.mood"
