"""Random queries in both engines; prints the share that Spark evaluates, and why the others are refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest

from pgtrickle.errors import InexactValueError, SparkUnsupportedError
from pgtrickle.pipeline.expressions import failure
from tests.conftest import Database
from tests.fuzz.case import generate
from tests.spark.relational import Both

# Spark warns of windows without PARTITION BY.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:WARN WindowExpression"),
]

MIN_COMPILED = 0.9


@pytest.mark.parametrize(("seed", "count"), [(2, 8), (1, 50), (4, 50)], ids=["few", "1", "4"])
def test_random_queries_give_what_postgresql_gives(database: Database, session: Any, seed: int, count: int) -> None:
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong: list[str] = []
    connection = database.connect()
    connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public; SET statement_timeout = '300s'")
    case = generate(seed).case
    for statement in (*case.setup, *case.views):
        connection.execute(statement.encode())
    for name, query in case.bases:
        connection.execute(f"CREATE TABLE {name} AS {query}".encode())
    both = Both(connection, session, native=seed % 2 == 0)
    for name, query in case.queries[:count]:
        outcome = judged(both, query, reasons)
        counts[outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            wrong.append(f"seed {seed} {name} {outcome}\n{query}")
    total = sum(counts.values()) - counts["refused by PostgreSQL"]
    share = counts["equal"] / total
    told = f"{share:.0%} of {total} evaluated on Spark; {dict(counts)}; {reasons.most_common(10)}"
    print(told)
    assert not wrong, told + "\n" + "\n".join(wrong[:3])
    assert share >= MIN_COMPILED, told


def judged(both: Both, query: str, reasons: Counter[str]) -> str:
    try:
        compiled = both.compile(query)
        wanted = both.wanted(query, [c.type for c in compiled.columns])
    except SparkUnsupportedError as error:
        reasons[error.construct] += 1
        return "refused"
    except psycopg.Error:
        return "refused by PostgreSQL"
    try:
        given = both.given(compiled)
    except Exception as error:  # noqa: BLE001 - its text is what is looked at
        ours = failure(str(error))
        return "inexact" if isinstance(ours, InexactValueError) else f"wrong: {error}"
    return "equal" if given == wanted else f"wrong: missing {wanted - given}, spurious {given - wanted}"
