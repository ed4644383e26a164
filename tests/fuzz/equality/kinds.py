"""Types whose equality is not that of their text: values in classes of equal ones, and what can be said about them.

In a text `@ext.citext` is a name in a schema of `SCHEMAS`, and `<ext:=>` an operator there; both are written out when
the search_path of a query's author is known.
"""

from __future__ import annotations

from dataclasses import dataclass

SCHEMAS = {
    "ext": '"Ext Schema"',
    "hs": "public",
    "lt": "trees",
    "vec": "vec",
    "one": '"App One"',
    "two": "other",
    "own": '"Own Types"',
    "ops": "ops",
}
OUTPUT = '"Out put"'  # where stream tables are
OTHER, NONE = "other", "none"  # what `=` means to a role that does not see the type's own: something else, or nothing

Shows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """`classes`: texts of equal values. `strict`: equal values have equal texts. `home`: the schema of its operators
    ("" is pg_catalog). `shows`: functions that tell equal values apart, or depend on settings, with their result.
    `tests`: conditions that equal values answer alike.
    """

    key: str
    declared: str
    column: str
    classes: tuple[tuple[str, ...], ...]
    strict: bool = False
    home: str = ""
    without: str = OTHER
    merges: bool = True
    extremes: str | None = None  # what min and max return; None: it has none
    shows: Shows = ()
    tests: tuple[str, ...] = ()
    elements: tuple[str, str] | None = None  # a set-returning function and the type of its rows
    needs: str = ""  # what not every server has
    widths: tuple[str, ...] = ()  # other declarations of the same type

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(text for texts in self.classes for text in texts)


TEXT_SHOWS: Shows = (
    ("({}::text)", "text"),
    ("concat({}, '|')", "text"),
    ("format('%s', {})", "text"),
    ("length({}::text)", "int"),
)
CITEXT_SHOWS: Shows = (
    *TEXT_SHOWS,
    ("lower({})", "text"),
    ("upper({}::text)", "text"),
    ("@ext.replace({}, 'A'::@ext.citext, 'z'::@ext.citext)", "text"),
    ("@ext.strpos({}, 'B'::@ext.citext)", "int"),
    ("md5({}::text)", "text"),
    ("({} || 'x')", "text"),
)
CITEXT_TESTS = (
    "({} <ext:~~> 'A%'::@ext.citext)",
    "({} <ext:~~*> '%B%'::@ext.citext)",
    "({} <ext:~> '^a'::@ext.citext)",
    "({} <ext:!~~> 'b%'::@ext.citext)",
    "({} <ext:<=> 'AB'::@ext.citext)",
)
CITEXTS = (("a", "A"), ("b", "B"), ("abc", "ABC", "aBc"), ("",), ("Zoe", "zoe"))

KINDS: tuple[Kind, ...] = (
    Kind(
        *("citext", "@ext.citext", '"E-Mail"', CITEXTS),
        home="ext",
        extremes="citext",
        shows=CITEXT_SHOWS,
        tests=CITEXT_TESTS,
    ),
    Kind(
        *("email", "@own.email", "mail", CITEXTS), home="ext", extremes="citext", shows=CITEXT_SHOWS, tests=CITEXT_TESTS
    ),
    Kind(
        *("email2", '@own."E Mail 2"', '"Mail 2"', CITEXTS),
        home="ext",
        extremes="citext",
        shows=TEXT_SHOWS,
        tests=CITEXT_TESTS,
    ),
    Kind(
        *("hstore", "@hs.hstore", "h", (("a=>1, b=>2", "b=>2,a=>1"), ("a=>1",), ("a=>NULL",), ("",), ("B=>x",))),
        strict=True,
        home="hs",
        without=NONE,
        shows=(("({} <hs:->> 'a')", "text"), ("({}::text)", "text"), ("@hs.akeys({})", "texts")),
        tests=("({} <hs:?> 'a')", "({} <hs:@>> 'a=>1'::@hs.hstore)"),
        elements=("@hs.skeys({})", "text"),
    ),
    Kind(
        *("ltree", "@lt.ltree", "tree", (("a.b",), ("a.b.c",), ("a",), ("B",), ("a.x",))),
        strict=True,
        home="lt",
        without=NONE,
        shows=(("({}::text)", "text"), ("@lt.nlevel({})", "int")),
        tests=(
            "({} <lt:<@> 'a'::@lt.ltree)",
            "({} <lt:@>> 'a.b'::@lt.ltree)",
            "({} <lt:~> 'a.*{1}'::@lt.lquery)",
            "({} <lt:<> 'a.c'::@lt.ltree)",
        ),
    ),
    Kind(
        *("citexts", "@ext.citext[]", '"Tags"'),
        (("{a,b}", "{A,B}", "{a,B}"), ("{a}", "{A}"), ("{ }",), ("{NULL}",), ("{a,NULL}", "{A,NULL}")),
        extremes="citexts",
        shows=(("({}::text)", "text"), ("array_to_string({}, ',', '*')", "text")),
        tests=("({} @> '{A}'::@ext.citext[])", "({} && '{b,z}'::@ext.citext[])", "(cardinality({}) > 1)"),
        elements=("unnest({})", "citext"),
    ),
    Kind(
        *("numerics", "numeric[]", "ns"),
        (("{1,2}", "{1.0,2.00}"), ("{0}", "{0.0}"), ("{ }",), ("{NULL,1}", "{NULL,1.00}")),
        extremes="numerics",
        shows=(("({}::text)", "text"), ("(({})[1]::text)", "text")),
        tests=("({} @> '{1.000}'::numeric[])", "({} && '{2,5}'::numeric[])"),
        elements=("unnest({})", "numeric"),
    ),
    Kind(
        *("numrange", "numrange", '"Range"'),
        (("[1,2)", "[1.0,2.00)"), ("empty",), ("(,5]", "(,5.0]"), ("[0,0]", "[0.0,0]"), ("[3,)", "[3.00,)")),
        shows=(("({}::text)", "text"), ("(lower({})::text)", "text")),
        tests=("({} @> 1.0)", "({} && numrange(1, 2.5))", "(isempty({}))", "({} <@ '[0,9]'::numrange)"),
    ),
    Kind(
        *("ctrange", "@own.ctrange", "cr"),
        (("[a,c)", "[A,C)", "[a,C)"), ("[b,b]", "[B,b]"), ("empty",), ("(,d]", "(,D]")),
        shows=(("({}::text)", "text"),),
        tests=("({} @> 'B'::@ext.citext)", "({} && '[C,E]'::@own.ctrange)"),
    ),
    Kind(
        *("ranges", "nummultirange", "nm"),
        (("{[1,2)}", "{[1.0,2.00)}"), ("{ }",), ("{[0,1],[3,4]}", "{[0.0,1.0],[3,4]}")),
        shows=(("({}::text)", "text"),),
        tests=("({} @> 1.50)",),
    ),
    Kind(
        *("interval", "interval", '"for"'),
        (("1 day", "24:00:00"), ("1 mon", "30 days", "720:00:00"), ("0",), ("-1 day", "-24:00:00"), ("1:30:00",)),
        extremes="interval",
        shows=(
            ("({}::text)", "text"),
            ("to_char({}, 'DD HH24:MI')", "text"),
            ("(timestamptz '2024-03-30 12:00+00' + {})", "timestamptz"),
            ("justify_hours({})::text", "text"),
            ("to_jsonb({})::text", "text"),
        ),
        tests=("({} > interval '12 hours')", "({} BETWEEN interval '0' AND interval '86400 seconds')"),
    ),
    Kind(
        *("jsonb", "jsonb", '"J b"'),
        (
            ('{"a": 1}', '{"a": 1.0}', '{"a":1.00}'),
            ("1", "1.0"),
            ("[1, 2.50]", "[1.0, 2.5]"),
            ('"a"',),
            ("null",),
            ("{ }",),
            ('{"a": null}',),
        ),
        shows=(("({}::text)", "text"), ("({} ->> 'a')", "text"), ("({} -> 'a')::text", "text")),
        tests=("({} @> '{\"a\": 1.000}')", "({} ? 'a')", "(jsonb_typeof({}) = 'number')"),
        elements=("jsonb_array_elements(CASE WHEN jsonb_typeof({}) = 'array' THEN {} END)", "jsonb"),
    ),
    Kind(
        *(
            "numeric",
            "numeric",
            "n",
            (("1", "1.0", "1.00"), ("0", "0.0"), ("2.5", "2.50"), ("NaN",), ("10",), ("-1.25",)),
        ),
        extremes="numeric",
        shows=(
            ("({}::text)", "text"),
            ("scale({})", "int"),
            ("({} + 0.5)", "numeric"),
            ("to_char({}, '0D99')", "text"),
        ),
        tests=("({} > 0.9)", "({} BETWEEN 1.000 AND 2.5000)"),
    ),
    Kind(
        *("amount", "@own.amount", '"Amount"', (("1", "1.0", "1.00"), ("0", "0.000"), ("7.5", "7.50"))),
        extremes="numeric",
        shows=(("({}::text)", "text"), ("round({}, 1)::text", "text")),
        tests=("({} >= 1.0)",),
    ),
    Kind(
        *("float", "float8", "f", (("0", "-0"), ("NaN",), ("1.5",), ("0.1",), ("0.30000000000000004",), ("Infinity",))),
        extremes="float",
        shows=(
            ("({}::text)", "text"),
            ("concat({}, '')", "text"),
            ("({} * 3)::text", "text"),
            ("to_jsonb({})::text", "text"),
            ("({} / 3)", "float"),
        ),
        tests=("({} > 0)", "({} <= 0.3)"),
    ),
    Kind(
        *("char", "char(4)", '"select"', (("a", "a  "), ("b",), ("ab", "ab "), ("",))),
        extremes="char",
        shows=(("length({})", "int"), ("({} || '|')", "text"), ("octet_length({})", "int")),
        tests=("({} = 'a     ')", "({} <= 'ab')"),
        widths=("char(4)", "char(6)"),
    ),
    Kind(
        *("timestamptz", "timestamptz", '"at"'),
        (
            ("2024-03-10 06:30:00+00", "2024-03-10 01:30:00-05"),
            ("2024-03-31 00:30:00+00",),
            ("2024-11-03 05:30:00+00",),
            ("2024-12-31 23:30:00+00", "2025-01-01 05:00:00+0530"),
            ("2024-07-01 12:00:00.5+00",),
        ),
        strict=True,
        extremes="timestamptz",
        shows=(
            ("date_trunc('day', {})", "timestamptz"),
            ("date_trunc('month', {})", "timestamptz"),
            ("({}::date)", "date"),
            ("({}::time)::text", "text"),
            ("({}::timestamp)::text", "text"),
            ("extract(hour FROM {})::int", "int"),
            ("extract(timezone FROM {})::int", "int"),
            ("to_char({}, 'YYYY-MM-DD HH24:MI TZ')", "text"),
            ("({}::text)", "text"),
            ("concat({}, '')", "text"),
            ("({} + interval '1 day')", "timestamptz"),
            ("to_jsonb({})::text", "text"),
            ("to_json({})::text", "text"),
            ("({} AT TIME ZONE 'Asia/Tokyo')::text", "text"),
            ("age({}::date, date '2024-02-03')::text", "text"),
        ),
        tests=(
            "({} > timestamptz '2024-07-01 00:00')",
            "({}::date = date '2024-12-31')",
            "(extract(day FROM {}) = 31)",
            "({} < '2024-11-03')",
        ),
    ),
    Kind(
        *("date", "date", "d", (("2024-01-02",), ("2024-02-01",), ("2024-12-31",), ("2024-03-31",))),
        strict=True,
        extremes="date",
        shows=(
            ("({}::text)", "text"),
            ("to_char({}, 'DD Mon YYYY')", "text"),
            ("({}::timestamptz)", "timestamptz"),
            ("extract(doy FROM {})::int", "int"),
        ),
        tests=("({} = '01/02/2024')", "({} < date '2/3/2024')", "({} >= '2024-02-01')"),
    ),
    Kind(
        *("pair", "@own.pair", '"Pair"'),
        (("(1,a)", "(1.0,A)", "(1.00,a)"), ("(2,b)", "(2.0,B)"), ("(,a)", "(,A)"), ("(0,)", "(0.0,)")),
        shows=(("({}::text)", "text"), ("(({}).c::text)", "text"), ("(({}).n::text)", "text")),
        tests=("(({}).n >= 1.0)", "(({}).c <ext:=> 'A'::@ext.citext)", "({} >= '(1,a)'::@own.pair)"),
    ),
    Kind(
        *("modn", "@own.modn", '"Mod"', (("(1)", "(11)", "(21)"), ("(2)", "(12)"), ("(0)", "(10)"))),
        home="own",
        merges=False,
        shows=(("({}::text)", "text"), ("(({}).v)", "int")),
        tests=("({} <own:<> '(12)'::@own.modn)", "({} <own:=> '(31)'::@own.modn)"),
    ),
    Kind(
        *("grade", "@own.grade", "g", (("low", "LOW"), ("mid", "MID"), ("top",))),
        home="own",
        shows=(("({}::text)", "text"),),
        tests=("({} <own:>=> 'MID'::@own.grade)", "({} <own:=> 'LOW'::@own.grade)"),
    ),
    Kind(
        *("bytea", "bytea", '"By\'tes"', ((r"\x00ff",), (r"\x61",), (r"\x",))),
        strict=True,
        shows=(("({}::text)", "text"), ("encode({}, 'hex')", "text"), ("concat({}, '')", "text")),
        tests=(r"({} > '\x61'::bytea)",),
    ),
    Kind(
        *("money", "money", "cash", (("1.50", "$1.50"), ("-2",), ("1000000",))),
        strict=True,
        extremes="money",
        shows=(("({}::text)", "text"), ("({} * 2)::text", "text")),
        tests=("({} > '1'::money)",),
    ),
    Kind(
        *("nocase", "text COLLATE @own.nocase", '"No Case"', (("a", "A"), ("b", "B"), ("abc", "ABC", "aBc"), ("",))),
        extremes="nocase",
        shows=(("concat({}, '')", "text"), ('(upper({}) COLLATE "C")', "text"), ("length({})", "int")),
        tests=("({} <= 'AB')", "({} = 'A')"),
        needs="icu",
    ),
    Kind(
        *("vector", "@vec.vector(3)", "vec", (("[1,2,3]", "[1.0,2,3]"), ("[0,0,0]", "[-0,0,0]"), ("[1,1,1]",))),
        home="vec",
        without=NONE,
        merges=False,
        shows=(("({}::text)", "text"), ("({} <vec:<->> '[0,0,1]'::@vec.vector)", "float")),
        tests=("(({} <vec:<->> '[0,0,0]'::@vec.vector) < 2)", "({} <vec:<> '[1,1,2]'::@vec.vector)"),
        needs="vector",
    ),
    Kind(
        *("text", "text", "s", (("a",), ("A",), ("b",), ("x y",), ("2024-02-01",))),
        strict=True,
        extremes="text",
        shows=(
            ("upper({})", "text"),
            ("initcap({})", "text"),
            ("to_tsvector({})::text", "text"),
            ("({}::@ext.citext)", "citext"),
        ),
        tests=("({} LIKE 'a%')", "({} = 'A')", "({} ~ '^[a-b]')", "({} ILIKE 'A')"),
    ),
    Kind(
        *("int", "int", "k", (("0",), ("1",), ("2",), ("3",))),
        strict=True,
        extremes="int",
        shows=(("({} + 1)", "int"), ("to_char({}, '09')", "text")),
        tests=("({} > 1)", "({} % 2 = 0)"),
    ),
)
BY_KEY = {kind.key: kind for kind in KINDS}
ALWAYS = ("int", "text")
