"""Code that values bring along: domains, casts, composites, ranges, enums, collations."""

from __future__ import annotations

from tests.security.attempt import TICK, Attempt, st
from tests.security.attempt import hostile as _hostile

CHECK = _hostile("chk", returns="bool", result="true")
DOMAIN = "CREATE DOMAIN evil.dom AS text CHECK (evil.chk(VALUE))"
ENUM = "CREATE TYPE evil.en AS ENUM ('a', 'b')"
NOT_TRUSTED = r"evil\.(chk|dom|comp|rng|en|text|to_text|to_json|from_text|other)"

ATTEMPTS = (
    Attempt(
        "domain_check",
        "a domain's CHECK runs when the constant is evaluated",
        (CHECK, DOMAIN, st("SELECT 'x'::evil.dom AS d"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_check_over_rows",
        "the same for rows, by changes",
        (CHECK, DOMAIN, st("SELECT id, label::evil.dom AS d FROM app.open"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_check_null",
        "a domain's CHECK runs for NULL, too",
        (CHECK, DOMAIN, st("SELECT id, NULL::evil.dom AS d FROM app.open"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_check_hidden",
        "the domain is inside of the query only, not in its result",
        (CHECK, DOMAIN, st("SELECT id FROM app.open WHERE (label::evil.dom)::text <> ''"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_over_domain",
        "the CHECK is one of the domain below",
        (CHECK, DOMAIN, "CREATE DOMAIN evil.other AS evil.dom", st("SELECT 'x'::evil.other AS d"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_key",
        "groups are found by keys of a domain, which the service reads back from text",
        (CHECK, DOMAIN, st("SELECT label::evil.dom AS d, count(*) AS n FROM app.open GROUP BY 1"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_extreme",
        "the state of max() is of a domain",
        (CHECK, DOMAIN, st("SELECT n, max(label::evil.dom) AS d FROM app.open GROUP BY n"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_array",
        "an array of a domain",
        (CHECK, DOMAIN, st("SELECT id, ARRAY[label]::evil.dom[] AS d FROM app.open"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_array_text",
        "an array of a domain, read from text",
        (CHECK, DOMAIN, st("SELECT id, '{x}'::text::evil.dom[] AS d FROM app.open"), TICK),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_in_composite",
        "a row type with a domain in it",
        (
            CHECK,
            DOMAIN,
            "CREATE TYPE evil.comp AS (a int, d evil.dom)",
            st("SELECT id, ROW(1, label)::evil.comp AS d FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_over_composite",
        "a domain over a row type",
        (
            "CREATE TYPE evil.comp AS (a int, b text)",
            "CREATE FUNCTION evil.chk(evil.comp) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.payload('chk'); RETURN true; END $$",
            "CREATE DOMAIN evil.dom AS evil.comp CHECK (evil.chk(VALUE))",
            st("SELECT id, ROW(1, label)::evil.dom AS d FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_in_range",
        "a range over a domain",
        (
            CHECK,
            DOMAIN,
            "CREATE TYPE evil.rng AS RANGE (SUBTYPE = evil.dom)",
            st("SELECT id, '[a,b)'::text::evil.rng AS d FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_in_multirange",
        "a multirange over a domain",
        (
            CHECK,
            DOMAIN,
            "CREATE TYPE evil.rng AS RANGE (SUBTYPE = evil.dom, MULTIRANGE_TYPE_NAME = evil.rngs)",
            st("SELECT id, '{[a,b)}'::text::evil.rngs AS d FROM app.open"),
            TICK,
        ),
        r"evil\.(chk|dom|rngs?)",
    ),
    Attempt(
        "domain_in_recordset",
        "a column definition list names the domain: jsonb_to_recordset(...) AS x(d evil.dom)",
        (
            CHECK,
            DOMAIN,
            st(
                """SELECT o.id, x.d::text AS d FROM app.open AS o, jsonb_to_recordset('[{"d": "x"}]') AS x(d evil.dom)"""
            ),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_by_populate",
        "json_populate_record() reads the domain out of a row type",
        (
            CHECK,
            DOMAIN,
            "CREATE TYPE evil.comp AS (d evil.dom)",
            st(
                """SELECT o.id, x.d::text AS d FROM app.open AS o, json_populate_record(NULL::evil.comp, '{"d": "x"}') AS x"""
            ),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "domain_by_json_table",
        "JSON_TABLE and JSON_VALUE return the domain",
        (
            CHECK,
            DOMAIN,
            st("""SELECT o.id, JSON_VALUE('{"d": "x"}', '$.d' RETURNING evil.dom)::text AS d FROM app.open AS o"""),
            TICK,
        ),
        NOT_TRUSTED,
        since=17,
    ),
    Attempt(
        "domain_check_later",
        "a domain that has no CHECK gets one when the stream table is there",
        (
            CHECK,
            "CREATE DOMAIN evil.dom AS text",
            st("SELECT id, label::evil.dom AS d FROM app.open"),
            TICK,
            "ALTER DOMAIN evil.dom ADD CHECK (evil.chk(VALUE)) NOT VALID",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "domain_check_replaced",
        "the CHECK calls a built-in at first, and is replaced",
        (
            CHECK,
            "CREATE DOMAIN evil.dom AS text CONSTRAINT c CHECK (length(VALUE) < 100)",
            st("SELECT id, (label::evil.dom)::text AS d FROM app.open"),
            TICK,
            "ALTER DOMAIN evil.dom DROP CONSTRAINT c, ADD CHECK (evil.chk(VALUE)) NOT VALID".replace(
                ", ADD", "; ALTER DOMAIN evil.dom ADD"
            ),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "composite_altered",
        "a row type gets an attribute of a domain when the stream table is there",
        (
            CHECK,
            DOMAIN,
            "CREATE TYPE evil.comp AS (a int)",
            st("SELECT id, ROW(n)::evil.comp AS d FROM app.open"),
            TICK,
            "ALTER TYPE evil.comp ADD ATTRIBUTE d evil.dom",
            TICK,
        ),
        maybe=NOT_TRUSTED + "|cannot alter type",
    ),
    Attempt(
        "cast_to_text",
        "a cast to text is what the service's own col::text calls",
        (
            ENUM,
            _hostile("to_text", "evil.en"),
            "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en)",
            st("SELECT id, 'a'::evil.en AS e FROM app.open"),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_text_error",
        "a cast to text that quotes secret rows in its error",
        (
            ENUM,
            "CREATE FUNCTION evil.to_text(evil.en) RETURNS text LANGUAGE plpgsql IMMUTABLE AS "
            "$$ BEGIN RAISE EXCEPTION 'rows: %', (SELECT string_agg(word, ',') FROM app.secret); END $$",
            "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en) AS ASSIGNMENT",
            st("SELECT 'a'::evil.en AS e", mode="FULL"),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_text_later",
        "the cast is made when the stream table is there",
        (
            ENUM,
            _hostile("to_text", "evil.en"),
            st("SELECT id, n, 'a'::evil.en AS e FROM app.open"),
            st("SELECT 'a'::evil.en AS e, count(*) AS n FROM app.open GROUP BY 1", "evil.grouped"),
            TICK,
            "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en) AS IMPLICIT",
            "SELECT pgtrickle.repair_stream_table(name) FROM unnest('{evil.st,evil.grouped}'::text[]) AS name",
            TICK,
        ),
        maybe=NOT_TRUSTED + "|does not exist",
    ),
    Attempt(
        "cast_from_text",
        "a cast from text is what the service's array[1]::type calls",
        (
            ENUM,
            _hostile("from_text", "text", "evil.en", "'a'::evil.en"),
            "CREATE CAST (text AS evil.en) WITH FUNCTION evil.from_text(text)",
            st("SELECT id, 'a'::evil.en AS e FROM app.open"),
            st("SELECT 'a'::evil.en AS e, max(n) AS n FROM app.open GROUP BY 1", "evil.grouped"),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_json",
        "to_json() looks for a cast to json, which no parse tree shows",
        (
            ENUM,
            _hostile("to_json", "evil.en", "json", "'1'::json"),
            "CREATE CAST (evil.en AS json) WITH FUNCTION evil.to_json(evil.en)",
            st("SELECT id, to_json('a'::evil.en) AS j, json_agg('a'::evil.en) OVER () AS k FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_json_by_row",
        "row_to_json() of a row with such a column",
        (
            ENUM,
            _hostile("to_json", "evil.en", "json", "'1'::json"),
            "CREATE CAST (evil.en AS json) WITH FUNCTION evil.to_json(evil.en)",
            st("SELECT id, row_to_json(ROW(id, 'a'::evil.en)) AS j FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_json_later",
        "the cast to json is made when the stream table is there",
        (
            ENUM,
            _hostile("to_json", "evil.en", "json", "'1'::json"),
            st("SELECT id, to_json('a'::evil.en) AS j FROM app.open"),
            TICK,
            "CREATE CAST (evil.en AS json) WITH FUNCTION evil.to_json(evil.en)",
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "cast_to_json_in_feed",
        "the change feed turns rows into JSON with the service's rights",
        (
            ENUM,
            _hostile("to_json", "evil.en", "json", "'1'::json"),
            st("SELECT id, 'a'::evil.en AS e, ARRAY['a'::evil.en] AS es FROM app.open"),
            "SELECT pgtrickle.create_subscriber('evil.st', 'me')",
            TICK,
            "CREATE CAST (evil.en AS json) WITH FUNCTION evil.to_json(evil.en)",
            "SELECT pgtrickle.read_changes('evil.st', 'me')",
            TICK,
            "SELECT pgtrickle.read_changes('evil.st', 'me')",
        ),
        maybe=NOT_TRUSTED + "|does not exist",
    ),
    Attempt(
        "implicit_cast_in_query",
        "an implicit cast runs where a function wants another type",
        (
            ENUM,
            _hostile("to_text", "evil.en"),
            "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en) AS IMPLICIT",
            st("SELECT id, length('a'::evil.en) AS n FROM app.open"),
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "enum_in_concat",
        "format() and concat() write a value out",
        (
            ENUM,
            _hostile("to_text", "evil.en"),
            "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en) AS IMPLICIT",
            st("SELECT id, format('%s', 'a'::evil.en) || concat('a'::evil.en, 1) AS t FROM app.open"),
            TICK,
        ),
        maybe=NOT_TRUSTED,
    ),
    Attempt(
        "range_subtype_diff",
        "a range whose subtype_diff is hostile",
        (
            _hostile("diff", "int, int", "float8", "1.0"),
            "CREATE TYPE evil.rng AS RANGE (SUBTYPE = int4, SUBTYPE_DIFF = evil.diff)",
            st("SELECT id, evil.rng(1, n + 5) AS r FROM app.open"),
            st("SELECT evil.rng(1, n + 5) AS r, count(*) AS n FROM app.open GROUP BY 1", "evil.grouped"),
            TICK,
        ),
        maybe=r"evil\.(rng|diff)|GiST",
    ),
    Attempt(
        "range_canonical",
        "a range whose canonical function is hostile",
        ("CREATE TYPE evil.rng",),
        r"must be superuser",
    ),
    Attempt(
        "base_type",
        "a base type with input and output functions of its own",
        (
            "CREATE TYPE evil.base",
            "CREATE FUNCTION evil.base_in(cstring) RETURNS text LANGUAGE internal IMMUTABLE AS 'textin'",
        ),
        "permission denied for language internal|must be superuser|does not exist",
    ),
    Attempt(
        "operator_class",
        "an operator class whose comparison is hostile",
        (
            ENUM,
            _hostile("cmp", "evil.en, evil.en", "int", "0"),
            "CREATE OPERATOR CLASS evil.ops DEFAULT FOR TYPE evil.en USING btree AS FUNCTION 1 evil.cmp(evil.en, evil.en)",
        ),
        "must be superuser",
    ),
    Attempt(
        "shadowed_type",
        "a domain called text, first in the search_path",
        (
            CHECK,
            "CREATE DOMAIN evil.text AS pg_catalog.text CHECK (evil.chk(VALUE))",
            "SET search_path = evil, pg_catalog",
            st("SELECT id, label::text AS d FROM app.open"),
            "RESET search_path",
            TICK,
        ),
        NOT_TRUSTED,
    ),
    Attempt(
        "collation",
        "a collation of the attacker",
        (
            'CREATE COLLATION evil.c FROM "C"',
            st("SELECT label COLLATE evil.c AS label, count(*) AS n FROM app.open GROUP BY 1"),
            TICK,
            "ALTER COLLATION evil.c RENAME TO d",
            TICK,
        ),
        maybe=r"collation|evil\.",
    ),
    Attempt(
        "enum_grows",
        "labels are added and renamed when the stream table is there",
        (
            ENUM,
            st("SELECT id, 'a'::evil.en AS e FROM app.open"),
            TICK,
            "ALTER TYPE evil.en ADD VALUE 'c'",
            "ALTER TYPE evil.en RENAME VALUE 'a' TO 'z''; DROP TABLE app.secret; --'",
            TICK,
        ),
        maybe=r"evil\.en|invalid input value",
    ),
    Attempt(
        "type_swapped",
        "the type of a result is replaced by a domain of the same name",
        (
            CHECK,
            ENUM,
            st("SELECT id, ('a'::evil.en)::text AS e FROM app.open"),
            TICK,
            "ALTER TYPE evil.en RENAME TO was; CREATE DOMAIN evil.en AS text CHECK (evil.chk(VALUE))",
            TICK,
        ),
        maybe=NOT_TRUSTED + r"|evil\.was",
    ),
    Attempt(
        "type_of_constants",
        "a row type called text: constants are read again in the author's path, to find operators that no text names",
        (
            CHECK,
            "CREATE DOMAIN evil.dom AS pg_catalog.text CHECK (evil.chk(VALUE))",
            "SET search_path = evil, pg_catalog, public",
            st(
                "SELECT id, '(x)'::text AS t FROM app.open "
                "WHERE NULLIF('a=>1'::public.hstore, 'b=>2'::public.hstore) IS NOT NULL"
            )
            + "; CREATE TYPE evil.text AS (d evil.dom)",
            "RESET search_path",
            TICK,
        ),
    ),
)
