"""Queries in both engines: the same bag of rows, over NULLs, duplicates, empty tables, infinities, NaN, 1.0, 1.00."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect import session as connected

from pgtrickle.errors import DefinitionError, InexactValueError
from pgtrickle.pipeline.expressions import failure
from tests.conftest import Database
from tests.spark.relational import Both

TABLES = """
CREATE TABLE t (id int PRIMARY KEY, a int, b bigint, n numeric(10,2), x numeric, f float8, s text, c char(4), d date,
                ts timestamp, o bool, xs int[], u uuid);
INSERT INTO t VALUES
 (1, 1, 10, 1.50, 1.0, 'NaN', 'a', 'ab', '2024-01-31', '2024-01-31 12:00', true, '{1,2}', NULL),
 (2, 1, 10, 1.50, 1.00, '-0', 'a', 'ab', '2024-01-31', '2024-01-31 12:00', false, '{}', NULL),
 (3, 2, NULL, -0.25, 1.000, '0', 'B', '', 'infinity', '-infinity', NULL, NULL, gen_random_uuid()),
 (4, NULL, 20, NULL, NULL, 'Infinity', NULL, NULL, NULL, NULL, true, '{NULL,3}', NULL),
 (5, 2, 5, 0.00, 0.3333, NULL, 'ä', 'x y', '0044-03-15 BC', 'infinity', false, '{3}', NULL),
 (6, 3, 9223372036854775807, 99999999.99, 123456.789, '-Infinity', '', 'ab', '9999-12-31', '1999-12-31', NULL, '{1}',
  NULL);
CREATE TABLE r (a int, b int, s text, n numeric(10,2));
INSERT INTO r VALUES (1, 1, 'a', 1.5), (1, 2, 'b', 2.5), (2, 3, NULL, NULL), (NULL, 4, 'a', 0), (2, 3, NULL, NULL),
 (7, NULL, 'z', -1), (1, 1, 'a', 1.5);
CREATE TABLE none (a int, b int, s text, n numeric(10,2));
CREATE TABLE "Mixed" ("A" int, a int, "select" text);
INSERT INTO "Mixed" VALUES (1, 2, 'x'), (3, 4, 'y');
CREATE TABLE strange (x numeric);
INSERT INTO strange VALUES ('NaN'), (1e30), ('Infinity');
"""


def _queries() -> dict[str, str]:
    sections = re.split(
        r"^-- (.+)$", Path(__file__).with_name("relational_queries.sql").read_text(), flags=re.MULTILINE
    )
    return {name: text.strip() for name, text in zip(sections[3::2], sections[4::2], strict=True)}


QUERIES = _queries()
PARTS = 4  # all but the first take too long for `make test`


@pytest.fixture
def both(database: Database, session: Any) -> Both:
    connection = database.connect()
    connection.execute(TABLES)
    return Both(connection, session)


@pytest.mark.parametrize(
    "query", ["SELECT x FROM strange UNION ALL SELECT x FROM t", "SELECT x, count(*) FROM strange GROUP BY x"]
)
def test_values_that_spark_cannot_compute_with_are_handed_on_or_refused(both: Both, query: str) -> None:
    """Refused by the error for which PostgreSQL evaluates the query instead; never another result."""
    try:
        both.check(query)
    except PySparkException as error:
        assert isinstance(failure(str(error)), InexactValueError)  # noqa: PT017 - it may also succeed


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("native", [False, True])
def test_queries_give_what_postgresql_gives(both: Both, native: bool, part: int) -> None:
    both.native = native
    wrong = []
    for name, query in list(QUERIES.items())[part::PARTS]:
        try:
            both.check(query)
        except (AssertionError, Exception) as error:  # noqa: BLE001 - all are told at once
            wrong.append(f"{name}: {type(error).__name__} {str(error)[:600]}")
    assert not wrong, f"{len(wrong)} queries\n" + "\n\n".join(wrong)


def test_recursion_needs_no_first_session(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """After Spark was lost the first session of the process is closed, and a worker's thread has none of its own."""
    monkeypatch.setattr(connected.SparkSession, "_default_session", None)
    with ThreadPoolExecutor(1) as thread:
        thread.submit(both.check, QUERIES["recursive"]).result()


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT (SELECT a FROM r) AS x FROM t", DefinitionError("more than one row returned by a subquery")),
        ("SELECT (SELECT b FROM r WHERE r.a = t.a) AS x FROM t", DefinitionError("more than one row returned by")),
        ("SELECT n / (a - 1) AS x FROM t", DefinitionError("division by zero")),
        ("SELECT sum(b) + b AS x FROM (SELECT b * 2 AS b FROM t) q GROUP BY b", DefinitionError("out of range")),
        ("SELECT sum(x) AS x FROM strange", InexactValueError("does not fit")),
        ("SELECT avg(b) AS x FROM t WHERE id = 6", InexactValueError("a quotient does not fit")),
    ],
)
def test_what_fails_fails_with_a_reason(both: Both, query: str, error: Exception) -> None:
    compiled = both.compile(query)
    with pytest.raises(Exception) as raised:  # noqa: PT011 - Spark's own, whose text has the reason
        both.given(compiled)
    found = failure(str(raised.value))
    assert type(found) is type(error), raised.value
    assert str(error) in str(found)
