"""Refreshes that fail: what is evaluated to find the row and the expression that an error comes from."""

from __future__ import annotations

from tests.security.attempt import TICK, Attempt, st
from tests.security.attempt import hostile as _hostile

# Fails for every row, and is longer than whatever else is looked at before it.
FAILS = "100 / ((((((n - n) + (n - n)) + (n - n)) + (n - n)) + (n - n)) + (n - n)) + length('" + "x" * 80 + "')"
ENUM = "CREATE TYPE evil.en AS ENUM ('a', 'b')"
TO_TEXT = _hostile("to_text", "evil.en")
CAST = "CREATE CAST (evil.en AS text) WITH FUNCTION evil.to_text(evil.en)"

ATTEMPTS = (
    Attempt(
        "failure_of_cast_value",
        "an expression of a query that fails is of a type that has a cast to text",
        (
            ENUM,
            TO_TEXT,
            CAST,
            st(f"SELECT id, COALESCE('a'::evil.en, 'b'::evil.en) AS e, {FAILS} AS n FROM app.open"),
            TICK,
        ),
    ),
    Attempt(
        "failure_of_cast_key",
        "the key of the row that a refresh fails on is of such a type",
        (
            ENUM,
            "CREATE TABLE evil.t (k evil.en PRIMARY KEY, n int)",
            "INSERT INTO evil.t VALUES ('a', 1), ('b', 2)",
            TO_TEXT,
            CAST,
            st(f"SELECT n, {FAILS} AS m FROM evil.t"),
            TICK,
        ),
        trusted=True,
    ),
    Attempt(
        "failure_of_named_cte",
        "the columns of a CTE that is called like a function that takes SQL look like a call",
        (
            st(
                "SELECT x.id, (WITH query_to_xml(q, b, c, d) AS (SELECT 1, 2, 3, 4) SELECT max(k.q) FROM query_to_xml AS k) "
                f"AS one, {FAILS} AS m FROM (SELECT o.id, o.n, 'SELECT evil.payload(''xml'')'::text AS q, true AS b, false AS c, "
                "''::text AS d FROM app.open AS o) AS x"
            ),
            TICK,
        ),
    ),
)
