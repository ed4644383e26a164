"""What `pgtrickle run` tells of queries before anything is created."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from tests.fleet.conftest import Run, Small, make_small, wait_for

CALL = "SELECT check_name, result, severity FROM pgtrickle.validate_query(%s)"
QUERIES = {
    "SELECT t.k, sum(t.v) AS v FROM t LEFT JOIN s ON s.k = t.k GROUP BY t.k": ("DIFFERENTIAL", "INFO"),
    # PostgreSQL's trees show no obstacle here: it takes the compiler to see it.
    "SELECT a.k FROM t AS a WHERE a.v IN (SELECT b.v FROM t AS b WHERE b.k = a.k ORDER BY b.k LIMIT 1)": (
        "FULL",
        "WARNING",
    ),
}


@pytest.fixture
def one(own_server: EmbeddedPostgres, spark_url: str, make_run: Callable[..., Run]) -> Small:
    made = make_small(own_server, "one")
    make_run(made.database.dsn, spark_url).start()
    wait_for(made.is_current)
    return made


def is_told(one: Small, query: str) -> bool:
    return "planned_at" in {name for name, *_ in one.sql(CALL, query)}


def test_validate_query_asks_and_then_shows_what_explain_query_tells(one: Small) -> None:
    for query, (mode, severity) in QUERIES.items():
        first = one.sql(CALL, query)
        assert [r for name, r, _ in first if name == "refresh_mode"] == ["not known yet"]
        assert ["the same call" in r for name, r, _ in first if name == "plan"] == [True]
        wait_for(partial(is_told, one, query))
        rows = one.sql(CALL, query)
        ((plan,),) = one.sql("CALL pgtrickle.explain_query(%s)", query)
        assert "\n".join(r for name, r, _ in rows if name == "plan") == plan
        assert ("refresh_mode", mode, severity) in rows
        assert plan.startswith(f"Mode: {mode}\n")
        if mode == "FULL":
            assert ("reason", plan.splitlines()[1].removeprefix("Reason: "), "WARNING") in rows
    assert one.sql("SELECT count(*) FROM pgtrickle.pgt_plans") == [(len(QUERIES),)]
