"""Edge values of each type, as SQL literals, and the constants that entries of the allow-list are tried with."""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.pipeline.expressions.types import NUMERIC, PgType, numeric


@dataclass(frozen=True)
class Kind:
    """A column of edge values. A type may have several: numerics with and without declared digits."""

    type: PgType
    sql: str
    values: tuple[str, ...]


_TEXT = (
    "",
    " ",
    "a",
    "a ",
    "A",
    "ab",
    "  ab  ",
    "abcabc",
    "ä",
    "a\u0308",
    "ß€",
    "😀",
    "x😀y",
    "%_\\",
    "12",
    "\u00a0\t\n",
)
_CHAR = ("", "a", "ab ", "abc", "ä😀", "  x")
_C = "C"
ENUM = "public.mood"

KINDS: dict[str, tuple[Kind, ...]] = {
    "bool": (Kind(PgType("bool"), "bool", ("t", "f")),),
    "int2": (Kind(PgType("int2"), "int2", ("-32768", "-7", "-1", "0", "1", "2", "7", "255", "32767")),),
    "int4": (Kind(PgType("int4"), "int4", ("-2147483648", "-7", "-1", "0", "1", "2", "3", "65536", "2147483647")),),
    "int8": (
        Kind(
            PgType("int8"),
            "int8",
            (
                "-9223372036854775808",
                "-2147483648",
                "-7",
                "-1",
                "0",
                "1",
                "2",
                "2147483648",
                "9007199254740993",
                "9223372036854775807",
            ),
        ),
    ),
    "numeric": (
        Kind(
            NUMERIC,
            "numeric",
            (
                "0",
                "0.00",
                "1",
                "1.0",
                "1.00",
                "-1.5",
                "2.5",
                "0.000000000000000001",
                "-99999999999999999999.999999999999999999",
                "99999999999999999999",
                "123.450",
                "9007199254740993",
                "9223372036854775807.5",
                "1e30",
                "1e-20",
                "NaN",
                "Infinity",
            ),
        ),
        Kind(numeric(10, 2), "numeric(10,2)", ("0", "0.01", "-0.50", "1.00", "2.50", "99999999.99", "-3", "NaN")),
        Kind(
            numeric(38, 18),
            "numeric(38,18)",
            ("0", "0.5", "-0.000000000000000001", "1.5", "99999999999999999999.999999999999999999", "12345678901234"),
        ),
        Kind(numeric(5, 0), "numeric(5,0)", ("0", "1", "-5", "15", "99999")),
    ),
    "float4": (
        Kind(
            PgType("float4"),
            "float4",
            ("-0", "0", "1", "-1.5", "0.1", "2.5", "1e-45", "3.4028235e38", "16777217", "NaN", "Infinity", "-Infinity"),
        ),
    ),
    "float8": (
        Kind(
            PgType("float8"),
            "float8",
            (
                "-0",
                "0",
                "1",
                "-1",
                "0.1",
                "-0.7",
                "0.5",
                "2.5",
                "-2.5",
                "5e-324",
                "1.7976931348623157e308",
                "4503599627370497.5",
                "9007199254740992",
                "9223372036854775807",
                "-2147483648.5",
                "32767.5",
                "1e39",
                "1e-50",
                "NaN",
                "Infinity",
                "-Infinity",
            ),
        ),
    ),
    "text": (Kind(PgType("text", collation=_C), 'text COLLATE "C"', _TEXT),),
    "varchar": (Kind(PgType("varchar", collation=_C), 'varchar COLLATE "C"', _TEXT),),
    "bpchar": (Kind(PgType("bpchar", length=6, collation=_C), 'char(6) COLLATE "C"', _CHAR),),
    "date": (
        Kind(
            PgType("date"),
            "date",
            (
                "2000-01-01",
                "1999-12-31",
                "2024-02-29",
                "2023-03-26",
                "2021-01-03",
                "1970-01-01",
                "1900-02-28",
                "0001-01-01",
                "0001-12-31 BC",
                "0044-03-15 BC",
                "4714-11-24 BC",
                "294276-12-31",
                "5874897-12-31",
                "9999-12-31",
                "infinity",
                "-infinity",
            ),
        ),
    ),
    "timestamp": (
        Kind(
            PgType("timestamp"),
            "timestamp",
            (
                "2000-01-01 00:00:00",
                "1999-12-31 23:59:59.999999",
                "2024-02-29 12:34:56.789012",
                "2024-01-31 00:00:00",
                "2023-03-26 02:30:00",
                "2023-10-29 02:30:00",
                "1969-12-31 23:59:59.5",
                "2021-01-03 00:00:01",
                "0001-01-01 00:00:00",
                "0001-12-31 23:00:00 BC",
                "4714-11-24 00:00:00 BC",
                "294276-12-31 23:59:59.999999",
                "infinity",
                "-infinity",
            ),
        ),
    ),
    "timestamptz": (
        Kind(
            PgType("timestamptz"),
            "timestamptz",
            (
                "2000-01-01 00:00:00+00",
                "2023-03-26 01:30:00+00",
                "2023-03-26 02:30:00+01",
                "2023-10-29 00:30:00.5+00",
                "0044-03-15 12:00:00+00 BC",
                "294276-12-31 23:59:59.999999+00",
                "infinity",
                "-infinity",
            ),
        ),
    ),
    "bytea": (Kind(PgType("bytea"), "bytea", ("\\x", "\\x00", "\\x0001", "\\xff", "\\x7f", "\\x41")),),
    "uuid": (
        Kind(
            PgType("uuid"),
            "uuid",
            (
                "00000000-0000-0000-0000-000000000000",
                "FFFFFFFF-ffff-ffff-ffff-ffffffffffff",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "9fffffff-9c0b-4ef8-bb6d-6bb9bd380a11",
            ),
        ),
    ),
    "jsonb": (Kind(PgType("jsonb"), "jsonb", ("1", "null", '[1, "a"]', '{"a": 1.0}', '{"a": 1.00}')),),
    "opaque": (
        Kind(PgType("opaque", label=ENUM), ENUM, ("sad", "ok", "happy")),
        Kind(
            PgType("opaque", label="inet"), "inet", ("10.0.0.1", "10.0.0.1/32", "10.0.0.0/8", "::1", "::ffff:1.2.3.4")
        ),
        Kind(
            PgType("opaque", label="time without time zone"), "time", ("00:00", "24:00", "12:00:00.5", "12:00:00.500")
        ),
    ),
}

PATTERNS = ("", "%", "_", "a%", "%b", "%b%", "_b", "a_", "ä", "%😀%", "x_y", "\\%\\_\\\\", "\\a%", "a b", "%\n", "(.*)")
INTERVALS = (
    "00:00:00",
    "1 day",
    "-1 days",
    "1 mon",
    "-1 mons",
    "13 mons",
    "1 year 2 mons 3 days 04:05:06.789",
    "-1 days +02:03:00",
    "00:00:00.000001",
    "-100 years",
    "290000 years",
    "100000000 days",
)
WIDTHS = ("00:00:00.000001", "00:15:00", "1 day 12:00:00", "1 mon", "-1 days", "100000000 days")
ORIGINS = ("2000-01-01 00:00:00", "2024-02-29 12:34:56.789012", "infinity")
HOURS = ("01:00:00", "-02:30:00", "00:00:00.000001", "87600000:00:00")
TARGETS = {
    "numeric": ("numeric(10,2)", "numeric(5,0)", "numeric(38,18)", "numeric(3,3)", "numeric(22,4)"),
    "varchar": ("character varying", "character varying(2)"),
    "bpchar": ("character(1)", "character(3)"),
}
NAMES = {"opaque": ENUM, "bpchar": "character(3)", "varchar": "character varying"}
