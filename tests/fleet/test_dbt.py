"""The dbt package with the real dbt-postgres, over the demo's shop and a running control plane."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.fleet.conftest import Run, Shop, wait_for

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "dbt"
ENVIRONMENT = (
    ROOT / ".state" / "dbt"
)  # dbt pins versions that pgtrickle does not have: it gets an environment of its own

pytestmark = pytest.mark.slow

# Runs dbt commands in one process: reads a list of arguments per line, answers with an object per line.
DRIVER = """
import json
import sys

from dbt.cli.main import dbtRunner

runner = dbtRunner()
for line in sys.stdin:
    result = runner.invoke(json.loads(line))
    nodes = getattr(result.result, "results", None) or []
    answer = {
        "success": result.success,
        "error": str(result.exception) if result.exception else None,
        "nodes": {r.node.name: [str(r.status), str(r.message)] for r in nodes if hasattr(r, "node")},
    }
    sys.stdout.flush()
    print("\\n=> " + json.dumps(answer), flush=True)
"""


@pytest.fixture(scope="module")
def python() -> Path:
    """Of an environment with dbt, which is made when it is missing."""
    program = Path(os.environ.get("DBT_PYTHON", ENVIRONMENT / "bin" / "python"))
    if not program.exists():
        venv.create(ENVIRONMENT, with_pip=True, symlinks=True)
    if (
        subprocess.run([program, "-c", "import dbt.adapters.postgres"], capture_output=True, check=False).returncode
        != 0
    ):
        command = [str(program), "-m", "pip", "install", "-q", "-r", str(PACKAGE / "requirements.txt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"dbt-postgres cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return program


class Dbt:
    """dbt over a copy of the project of the tests."""

    def __init__(self, python: Path, shop: Shop, directory: Path) -> None:
        shutil.copytree(HERE / "dbt_shop", directory)
        (directory / "packages.yml").write_text(f"packages:\n  - local: {PACKAGE}\n")
        server = conninfo_to_dict(shop.dsn)
        environ = {
            **os.environ,
            "DBT_PROFILES_DIR": str(directory),
            "DBT_HOST": str(server["host"]),
            "DBT_PORT": str(server["port"]),
            "DBT_USER": str(server["user"]),
            "DBT_PASSWORD": str(server["password"]),
            "DBT_DATABASE": str(server["dbname"]),
        }
        self._process = subprocess.Popen(
            [python, "-c", DRIVER],
            cwd=directory,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __call__(self, *arguments: str, fails: bool = False, **variables: Any) -> tuple[dict[str, Any], str]:
        """The result, and what dbt printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = [*arguments, *(["--vars", json.dumps(variables)] if variables else [])]
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith("=> "):
                answer = json.loads(line.removeprefix("=> "))
                assert answer["success"] is not fails, "".join(said)
                return answer, "".join(said)
            said.append(line)
        raise AssertionError("".join(said))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()


@pytest.fixture
def dbt(python: Path, shop: Shop, run: Run, tmp_path: Path) -> Iterator[Dbt]:
    shop.sql(
        "SELECT pgtrickle.drop_stream_table(pgt_name, cascade => true) FROM pgtrickle.pgt_stream_tables "
        "WHERE pgt_name IN ('open_orders', 'price_range', 'good_customers', 'worklist')"
    )
    run.start()
    found = Dbt(python, shop, tmp_path / "project")
    found("deps")
    yield found
    found.close()


def entry(shop: Shop, name: str = "sales_by_country") -> dict[str, Any]:
    rows = shop.sql(
        "SELECT to_jsonb(t) FROM pgtrickle.pgt_stream_tables AS t WHERE pgt_schema = 'analytics' AND pgt_name = %s",
        name,
    )
    return dict(rows[0][0]) if rows else {}


def check_rows(shop: Shop, least: int = 0) -> None:
    differences = shop.sql(
        "WITH wanted AS (SELECT coalesce(c.country, 'it''s unknown') AS country, count(*) AS orders "
        f"FROM customers AS c JOIN orders AS o ON o.customer_id = c.id GROUP BY 1 HAVING count(*) > {least}), "
        "found AS (SELECT country, orders FROM analytics.sales_by_country) "
        "(TABLE wanted EXCEPT ALL TABLE found) UNION ALL (TABLE found EXCEPT ALL TABLE wanted)"
    )
    assert differences == []


def test_models_are_stream_tables_for_their_whole_life(dbt: Dbt, shop: Shop) -> None:
    # New: created, loaded, with indexes, grants and comment; then the tests pass.
    dbt("build")
    check_rows(shop)
    first = entry(shop)
    assert (first["schedule"], first["engine"]) == ("1s", "postgres")
    assert entry(shop, "busy_countries")["effective_refresh_mode"] == "DIFFERENTIAL"
    assert indexes(shop) == [("country", True), ("orders", False)]
    assert shop.sql("SELECT has_table_privilege('pg_monitor', 'analytics.sales_by_country', 'SELECT')") == [(True,)]
    comment = shop.sql("SELECT obj_description('analytics.sales_by_country'::regclass)")
    assert comment == [("Sales of each country's customers",)]

    # The same again: content and state are kept.
    shop.sql("INSERT INTO orders (customer_id) VALUES (1), (2), (3)")
    dbt("build")
    check_rows(shop)
    again = entry(shop)
    assert (again["pgt_id"], again["definition_version"]) == (first["pgt_id"], first["definition_version"])
    assert indexes(shop) == [("country", True), ("orders", False)]

    # Another schedule and another query: altered in place.
    dbt("run", every="5s", least=1500)
    check_rows(shop, 1500)
    changed = entry(shop)
    assert (changed["pgt_id"], changed["schedule"]) == (first["pgt_id"], "5s")
    assert changed["definition_version"] > first["definition_version"]

    # Full refresh: dropped with its readers, and created.
    dbt("run", "--full-refresh")
    check_rows(shop)
    rebuilt = entry(shop)
    assert rebuilt["pgt_id"] != first["pgt_id"]
    assert entry(shop, "busy_countries")

    # Another materialization, and back.
    for kind in ("table", "view"):
        dbt("run", "--select", "sales_by_country", kind=kind)
        check_rows(shop)
        assert entry(shop) == {}
    dbt("run")
    check_rows(shop)
    assert entry(shop)["status"] == "ACTIVE"

    # Another name: the old one is listed, and dropped on request.
    dbt("run", called="sales_of_countries")
    assert entry(shop)
    assert entry(shop, "sales_of_countries")
    _, said = dbt("run-operation", "drop_removed_stream_tables", called="sales_of_countries")
    assert '"analytics"."sales_by_country"' in said
    assert entry(shop)
    arguments = ("--args", json.dumps({"dry_run": False}))
    dbt("run-operation", "drop_removed_stream_tables", *arguments, called="sales_of_countries")
    assert entry(shop) == {}
    assert entry(shop, "sales_of_countries")
    assert shop.sql("SELECT to_regclass('analytics.sales_by_country')") == [(None,)]


def indexes(shop: Shop) -> list[tuple[Any, ...]]:
    """Of dbt: column, unique."""
    return shop.sql(
        "SELECT a.attname, i.indisunique FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid "
        "JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = 'analytics.sales_by_country'::regclass AND c.relname ~ '^[0-9a-f]{32}$' ORDER BY 1"
    )


def test_what_does_not_work_fails_the_run(dbt: Dbt, shop: Shop, run: Run) -> None:
    dbt("build")
    shop.sql("SELECT pgtrickle.suspend_stream_table('analytics.busy_countries')")
    answer, _ = dbt("test", "--select", "busy_countries", fails=True)
    failed = {name for name, (status, _) in answer["nodes"].items() if status == "fail"}
    assert [name.partition("busy")[0] for name in failed] == ["pgtrickle_stream_table_is_fresh_"]
    answer, _ = dbt("run", "--select", "busy_countries", fails=True)
    assert "status SUSPENDED" in answer["nodes"]["busy_countries"][1]
    shop.sql("SELECT pgtrickle.resume_stream_table('analytics.busy_countries')")
    dbt("build", "--select", "busy_countries")
    # No control plane: the definition is stored, and the run says why it did not wait.
    run.end()
    wait_for(lambda: shop.sql("SELECT scheduler_status FROM pgtrickle.health_summary()") == [("STOPPED",)])
    answer, _ = dbt("run", "--select", "busy_countries", fails=True)
    assert "start `pgtrickle run`" in answer["nodes"]["busy_countries"][1]
