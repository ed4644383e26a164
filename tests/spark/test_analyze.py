"""`pgtrickle plan --analyze`: both engines compute a refresh, and nothing is different afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pgtrickle.cli.app import app
from pgtrickle.settings import Settings
from tests.conftest import Database
from tests.line import Line

JOINED = "SELECT c.region, count(*) AS n, sum(s.qty) AS q FROM sale s JOIN customer c ON c.id = s.customer GROUP BY 1"
SECRET = "a secret region"


@pytest.fixture
def shop(installed: Database, make_line: Callable[..., Line], tmp_path: Path) -> Line:
    line = make_line(installed, Settings(replica_root=f"{tmp_path}/replicas"))
    line.sql(f"""
        CREATE TABLE customer (id int PRIMARY KEY, region text NOT NULL);
        CREATE TABLE sale (id int PRIMARY KEY, customer int NOT NULL, qty int NOT NULL);
        INSERT INTO customer SELECT i, CASE WHEN i % 4 = 0 THEN '{SECRET}' ELSE 'r' || i % 4 END
        FROM generate_series(1, 40) AS i;
        INSERT INTO sale SELECT i, 1 + i % 40, i % 7 FROM generate_series(1, 1000) AS i;
        ANALYZE customer, sale;
    """)
    return line


@pytest.fixture
def run(installed: Database, spark_url: str, tmp_path: Path) -> Callable[..., Any]:
    def invoke(*arguments: str, code: int = 0, server: str = installed.dsn) -> Any:
        settings = ["--set", f"spark_remote={spark_url}", "--set", f"replica_root={tmp_path}/replicas"]
        done = CliRunner().invoke(app, [*settings, "plan", *arguments, "--analyze", "--server", server])
        assert done.exit_code == code, done.output
        said = f"{done.output}{done.exception or ''}"
        assert SECRET not in said
        return json.loads(done.stdout) if "--json" in arguments else said

    return invoke


def create(line: Line, name: str, query: str, mode: str = "DIFFERENTIAL", engine: str = "spark") -> None:
    line.sql("SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => %s)", name, query, mode, engine)
    line.tick()


def ways(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(way["mode"], way["engine"]): way for way in found["ways"]}


def operators(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for each in plan["inputs"]:
        yield from operators(each)


def everything(line: Line, root: Path) -> dict[str, Any]:
    """Content, catalog, history, buffers, objects and files."""
    tables = line.sql(
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
        "WHERE schemaname IN ('public', 'pgtrickle', 'pgtrickle_changes') ORDER BY 1"
    )
    # What the scheduler of the test writes about itself, whoever else is there.
    own = ("pgtrickle.pgt_leases", "pgtrickle.pgt_schedulers", "pgtrickle.pgt_workers")
    rows = {t: sorted(line.sql(f"SELECT x::text FROM {t} AS x")) for (t,) in tables if t not in own}
    files = {str(p): p.stat().st_mtime_ns for p in root.rglob("*") if p.is_file()}
    return {"rows": rows, "files": files}


def test_both_engines_report_rows_and_time_and_change_nothing(
    shop: Line, run: Callable[..., Any], tmp_path: Path
) -> None:
    create(shop, "st", JOINED)
    shop.sql("UPDATE sale SET qty = qty + 1 WHERE id <= 20; DELETE FROM sale WHERE id = 1000")
    before = everything(shop, tmp_path)
    found = run("st", "--json")
    assert everything(shop, tmp_path) == before
    assert found["table"] == "public.st"
    groups = shop.sql("SELECT count(DISTINCT region) FROM customer")[0][0]
    known = ways(found)
    assert set(known) == {(m, e) for m in ("FULL", "DIFFERENTIAL") for e in ("postgres", "spark")}
    for way in known:
        assert "why_not" not in known[way], known[way]
        listed = list(operators(known[way]["plan"]))
        assert all(ms > 0 for ms in known[way]["parts_ms"].values())
        assert any(each["ms"] for each in listed)
        assert len(listed) > 3
    assert known["FULL", "postgres"]["rows"] == known["FULL", "spark"]["rows"] == groups
    scans = [o for o in operators(known["FULL", "postgres"]["plan"]) if " on " in o["operator"]]
    assert sorted((o["operator"].rpartition(" on ")[2], o["rows"]) for o in scans) == [("customer", 40), ("sale", 999)]
    # From the replica, which has the deleted row, and the changes: 999 rows reach the join.
    assert 999 in [o["rows"] for o in operators(known["FULL", "spark"]["plan"])]
    changed = [
        o for o in operators(known["DIFFERENTIAL", "postgres"]["plan"]) if "changes of public.sale" in o["operator"]
    ]
    assert changed
    assert max(o["rows"] for o in changed) == 41  # 20 updates are two images each
    assert known["DIFFERENTIAL", "spark"]["rows"] == groups  # each has a sale that was changed
    text = run("st")
    assert "FULL on PostgreSQL: 4 rows; plan " in text
    assert "FULL on Spark: 4 rows; open " in text
    assert "changes of public.sale" in text
    shop.tick()
    shop.check("st")


def test_it_says_why_an_engine_cannot_compute_it(shop: Line, run: Callable[..., Any]) -> None:
    create(shop, "st", JOINED, engine="auto")
    known = ways(run("st", "--json"))
    assert "why_not" not in known["FULL", "postgres"]
    assert known["FULL", "spark"]["why_not"].endswith(" has no replica")
    assert known["DIFFERENTIAL", "postgres"]["why_not"] == "no change is pending"
    assert known["DIFFERENTIAL", "spark"]["why_not"] == "no change is pending"
    create(shop, "odd", "SELECT id, format('%s', qty) AS shown FROM sale", engine="auto")
    assert "format" in ways(run("odd", "--json"))["FULL", "spark"]["why_not"]
    assert "FULL on Spark: not possible now: " in run("odd")
    create(shop, "only_full", "SELECT id FROM sale", mode="FULL", engine="postgres")
    shop.sql("INSERT INTO sale VALUES (2000, 1, 1)")
    why = ways(run("only_full", "--json"))["DIFFERENTIAL", "postgres"]["why_not"]
    assert why == ways(run("only_full", "--json"))["DIFFERENTIAL", "spark"]["why_not"]
    assert why.startswith("the query is not maintained from changes: ")
    shop.sql("SELECT pgtrickle.create_stream_table('new', 'SELECT id FROM sale', '1h', initialize => false)")
    assert ways(run("new", "--json"))["DIFFERENTIAL", "postgres"]["why_not"] == "it has to be loaded again: first load"
    shop.sql("TRUNCATE sale")
    assert (
        ways(run("st", "--json"))["DIFFERENTIAL", "postgres"]["why_not"]
        == "a source was truncated, or rows of it were moved to another partition by MERGE"
    )


def test_a_query_that_fails_on_a_value_says_so_and_the_other_ways_are_computed(
    shop: Line, run: Callable[..., Any]
) -> None:
    create(shop, "st", "SELECT id, 10 / qty AS share FROM sale WHERE qty > 0", engine="postgres")
    query = "SELECT id, 10 / qty AS share FROM sale"
    shop.sql("SELECT pgtrickle.create_stream_table('bad', %s, '1h', initialize => false)", query)
    known = ways(run("bad", "--json"))
    assert "division by zero" in known["FULL", "postgres"]["why_not"]
    assert "why_not" in known["DIFFERENTIAL", "postgres"]
    assert "why_not" not in ways(run("st", "--json"))["FULL", "postgres"]


def test_only_the_role_that_may_alter_every_stream_table_may_analyze(
    shop: Line,
    installed: Database,
    run: Callable[..., Any],
    make_role: Callable[[Database], Any],
) -> None:
    create(shop, "st", JOINED, engine="postgres")
    stranger = make_role(installed)
    dsn = installed.server.dsn(installed.name, user=stranger.info.user, password="x")
    said = run("st", code=1, server=dsn)
    assert "only the role that installed pgtrickle may run pgtrickle plan" in said
    assert "sale" not in said


def test_what_cannot_be_combined_is_refused(run: Callable[..., Any]) -> None:
    run("--query", "SELECT 1", code=2)
    run("st", "--statements", code=2)
