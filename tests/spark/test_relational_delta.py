"""Deltas of queries on Spark: what PostgreSQL's answers before and after the changes differ by."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import InexactValueError, SparkUnsupportedError
from pgtrickle.pipeline.expressions import failure
from tests.conftest import Database
from tests.fuzz.case import generate
from tests.fuzz.schema import ROLLBACK
from tests.spark.deltas import Deltas
from tests.spark.relational import Both
from tests.spark.test_relational import QUERIES, TABLES

pytestmark = pytest.mark.slow

CHANGES = """
DELETE FROM t WHERE id IN (2, 5);
UPDATE t SET a = 1, s = 'a', f = 0 WHERE id = 4;
INSERT INTO t VALUES (7, 3, 9, 7.25, 1.0, '-0', 'B', 'ab', '2024-02-29', '2024-02-29 12:00', NULL, '{2}', NULL);
DELETE FROM r WHERE b = 2;
INSERT INTO r VALUES (3, 2, 'ä', 0.25), (1, 1, 'a', 1.5);
INSERT INTO none VALUES (2, 2, 'x', 1);
UPDATE "Mixed" SET "A" = 5 WHERE a = 2;
"""
SEED = 4
PARTS = 4  # all but the first take too long for `make test`


@pytest.mark.parametrize("part", range(PARTS))
def test_deltas_are_what_postgresql_s_answers_differ_by(database: Database, session: Any, part: int) -> None:
    connection = database.connect()
    connection.execute(TABLES)
    deltas = Deltas(Both(connection, session, native=True))
    wanted = {name: deltas.before(query) for name, query in list(QUERIES.items())[part::PARTS]}
    deltas.hold()
    connection.execute(CHANGES)
    deltas.move()
    wrong = []
    for name, asked in wanted.items():
        try:
            found = deltas.difference(asked)
        except Exception as error:  # noqa: BLE001 - all are told at once
            found = f"{type(error).__name__} {error}"
        if found is not None:
            wrong.append(f"{name}: {found[:600]}")
    assert not wrong, f"{len(wrong)} of {len(wanted)}\n" + "\n\n".join(wrong)


def test_nothing_changes_where_no_input_does(database: Database, session: Any) -> None:
    connection = database.connect()
    connection.execute(TABLES)
    both = Both(connection, session)
    compiled = both.compile("SELECT t.a, count(*) AS n FROM t LEFT JOIN r ON t.a = r.a GROUP BY t.a")
    assert compiled.delta(frozenset({("public", "none")})) is None


def test_deltas_of_random_queries(database: Database, session: Any) -> None:
    connection = database.connect()
    connection.execute("SET statement_timeout = '300s'")
    case = generate(SEED).case
    for statement in (*case.setup, *case.views):
        connection.execute(statement.encode())
    for name, query in case.bases:
        connection.execute(f"CREATE TABLE {name} AS {query}".encode())
    deltas = Deltas(Both(connection, session, native=True))
    counts: Counter[str] = Counter()
    wanted = {}
    for name, query in case.queries:
        try:
            wanted[name] = deltas.before(query)
        except SparkUnsupportedError:
            counts["refused"] += 1
        except psycopg.Error:
            counts["refused by PostgreSQL"] += 1
    deltas.hold()
    for transaction in case.rounds[0]:
        with connection.transaction(force_rollback=ROLLBACK in transaction):
            for statement in transaction:
                if statement != ROLLBACK:
                    connection.execute(statement.encode())
    deltas.move()
    wrong = []
    for name, asked in wanted.items():
        try:
            found = deltas.difference(asked)
        except psycopg.Error:
            counts["refused by PostgreSQL"] += 1
            continue
        except Exception as error:  # noqa: BLE001 - its text is what is looked at
            if isinstance(failure(str(error)), InexactValueError):
                counts["inexact"] += 1
                continue
            found = f"{type(error).__name__} {error}"
        counts["equal" if found is None else "wrong"] += 1
        if found is not None:
            wrong.append(f"{name}: {found[:1500]}\n{asked.query}")
    print(dict(counts))
    assert not wrong, f"{counts}\n" + "\n\n".join(wrong[:3])
    assert counts["equal"] >= 0.8 * len(case.queries), counts
