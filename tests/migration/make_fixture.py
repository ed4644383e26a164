"""Writes a fixture of an earlier catalog: `python -m tests.migration.make_fixture --source CHECKOUT/src --name v1`.

It starts a PostgreSQL, lets the `pgtrickle` of the given checkout install, define and refresh, and dumps two databases:
`main` with stream tables of each kind, `origin` with a table that `main` mirrors. What is particular to a server (its
identifier, oids of databases and roles) is written as @tokens@, which tests/migration/fixture.py replaces.
Tables get the same oids there, because plans are compared by hashes that they are part of; for that there is room left.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg

from pgtrickle.servers.embedded_postgres import EmbeddedPostgres, installation
from tests.conftest import ROLE, ROLE_PASSWORD, Database, create_database, prepare_server

FIXTURES = Path(__file__).parent / "fixtures"
MAIN, ORIGIN = "fixture_main", "fixture_origin"
# Where oids of source tables begin, and those of stream tables: our schemas fit in between.
SOURCE_OIDS, STREAM_OIDS = 30_000, 40_000

TABLES = """
CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, region text);
CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2), placed date);
CREATE TABLE edges (a int, b int);
CREATE TABLE codes (id int PRIMARY KEY, code bpchar, kind character(4));
CREATE TABLE "Odd ""name"" 100%" (id int PRIMARY KEY, "select" text, "ü 1" int);
CREATE FOREIGN TABLE parts_there (id int, name text, price numeric(8, 2)) SERVER elsewhere
OPTIONS (schema_name 'public', table_name 'parts');
INSERT INTO customers
SELECT i, 'customer ' || i, (ARRAY['north', 'south', NULL])[1 + i % 3] FROM generate_series(1, 9) AS i;
INSERT INTO orders SELECT i, 1 + i % 9, i * 1.25, date '2026-01-01' + i FROM generate_series(1, 40) AS i;
INSERT INTO edges VALUES (1, 2), (2, 3), (3, 4), (4, 2), (5, 6);
INSERT INTO codes VALUES (1, 'a  ', 'x'), (2, 'a', 'x'), (3, 'b ', 'long'), (4, '', NULL);
INSERT INTO "Odd ""name"" 100%" SELECT i, 'word ' || i % 3, i FROM generate_series(1, 9) AS i;
"""
ORIGIN_TABLES = """
CREATE TABLE parts (id int PRIMARY KEY, name text, price numeric(8, 2));
INSERT INTO parts SELECT i, 'part ' || i, i * 2.5 FROM generate_series(1, 12) AS i;
"""
ODD = 'Odd; "total" %s'
# name, query, mode
STREAM_TABLES = (
    (
        "big_orders",  # a bag
        "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer WHERE o.amount > 10",
        "DIFFERENTIAL",
    ),
    (
        "by_region",  # groups with their state
        "SELECT c.region, count(*) AS n, sum(o.amount) AS total, min(o.amount) AS least, avg(o.amount) AS mean "
        "FROM orders o JOIN customers c ON c.id = o.customer GROUP BY c.region",
        "DIFFERENTIAL",
    ),
    ("top_orders", "SELECT id, amount FROM orders ORDER BY amount DESC, id LIMIT 5", "DIFFERENTIAL"),
    (
        "reachable",
        "WITH RECURSIVE r(a, b) AS (SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON e.a = r.b) "
        "SELECT a, b FROM r",
        "DIFFERENTIAL",
    ),
    (
        "ranked",  # regions
        "SELECT id, customer, rank() OVER (PARTITION BY customer ORDER BY amount DESC) AS place FROM orders",
        "DIFFERENTIAL",
    ),
    ("regions", "SELECT DISTINCT region FROM customers", "DIFFERENTIAL"),
    ("totals", "SELECT sum(total) AS total, sum(n) AS n FROM by_region", "DIFFERENTIAL"),  # reads a stream table
    ("latest", "SELECT max(placed) AS placed, count(*) AS n FROM orders", "FULL"),
    ("names", "SELECT id, upper(name) AS name FROM customers", "IMMEDIATE"),
    ("codes_listed", "SELECT id, code, kind FROM codes WHERE id < 100", "DIFFERENTIAL"),
    ("codes_by_kind", "SELECT count(*) AS n FROM codes GROUP BY kind", "DIFFERENTIAL"),  # the key is not in the result
    (
        f'"{ODD.replace(chr(34), chr(34) * 2)}"',
        'SELECT "select" AS "from %s", sum("ü 1") AS """" FROM "Odd ""name"" 100%" GROUP BY "select"',
        "DIFFERENTIAL",
    ),
    ("there", "SELECT id, price FROM parts_there WHERE price > 5", "AUTO"),  # maintained from changes of the origin
    ("offers", f"SELECT p.id, p.name, p.price * 2 AS price FROM {ORIGIN}.public.parts p", "DIFFERENTIAL"),
)
# Between two refreshes, so that state, history and kept rows have been maintained from changes.
CHANGES = """
INSERT INTO orders VALUES (41, 2, 99.5, '2026-03-01'), (42, 7, 3, '2026-03-02');
UPDATE orders SET amount = amount + 1 WHERE id % 5 = 0;
DELETE FROM orders WHERE id = 3;
UPDATE customers SET region = 'west' WHERE id = 4;
DELETE FROM edges WHERE a = 4;
UPDATE codes SET code = 'c  ' WHERE id = 3;
UPDATE "Odd ""name"" 100%" SET "ü 1" = 50 WHERE id = 2;
"""
ORIGIN_CHANGES = "UPDATE parts SET price = price + 1 WHERE id < 4; INSERT INTO parts VALUES (13, 'part 13', 1)"
# Ids of transactions, or of processes that have ended: nothing of it has a meaning on another server.
WITHOUT_DATA = (
    "pgtrickle_changes.changes_*",
    "pgtrickle.pgt_events",
    "pgtrickle.pgt_leases",
    "pgtrickle.pgt_runtime",
    "pgtrickle.pgt_scheduler_jobs",
)
OURS = ("pgtrickle", "pgtrickle_changes")


def command(source: Path, *arguments: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-m", "pgtrickle.cli", *arguments], env=environ, check=True)


def run(dsn: str, text: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(text)


def advance_oids(superuser_dsn: str, target: int) -> None:
    """The next relation of the server gets this oid, if nobody else takes one."""
    run(
        superuser_dsn,
        "DO $$ BEGIN LOOP EXIT WHEN "
        f"pg_nextoid('pg_class', 'oid', 'pg_class_oid_index')::int8 >= {target - 1}; END LOOP; END $$",
    )


def create_foreign_server(main: Database) -> None:
    main.superuser_sql(
        "CREATE EXTENSION postgres_fdw; CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw "
        f"OPTIONS (host 'localhost', port '{main.server.port}', dbname '{ORIGIN}');"
        f"CREATE USER MAPPING FOR {ROLE} SERVER elsewhere OPTIONS (user '{ROLE}', password '{ROLE_PASSWORD}');"
        f"GRANT USAGE ON FOREIGN SERVER elsewhere TO {ROLE}"
    )


def build(source: Path, superuser: str, main: str, origin: str) -> None:
    advance_oids(superuser, SOURCE_OIDS)
    run(main, TABLES)
    run(origin, ORIGIN_TABLES)
    command(source, "install", main)
    command(source, "install", origin)
    advance_oids(superuser, STREAM_OIDS)
    with psycopg.connect(main, autocommit=True) as conn:
        for name, query, mode in STREAM_TABLES:
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s, '1m', %s)", (name, query, mode))
        conn.execute("SELECT pgtrickle.create_refresh_group('sales', ARRAY['by_region', 'top_orders'])")
        conn.execute("SELECT pgtrickle.set_option('scheduler_interval_ms', '700')")
    command(source, "refresh", "--all", "--server", main)
    command(source, "refresh", "--all", "--server", main)  # what reads another database was defined meanwhile
    run(main, CHANGES)
    run(origin, ORIGIN_CHANGES)
    command(source, "refresh", "--all", "--server", main)
    command(source, "verify", "--all", "--server", main)


def dump(dsn: str) -> str:
    """Tables of users first, then our schemas, then rows, then constraints, indexes and triggers."""

    def part(*options: str) -> str:
        binary = installation() / "bin" / "pg_dump"
        fixed = ["--no-owner", "--inserts", "--rows-per-insert=100", "--dbname", dsn]
        return subprocess.run([binary, *fixed, *options], capture_output=True, text=True, check=True).stdout

    ours = [f"--schema={name}" for name in OURS]
    rows = [f"--exclude-table-data={name}" for name in WITHOUT_DATA]
    parts = {
        "public": part("--section=pre-data", "--schema=public"),
        "ours": part("--section=pre-data", *ours),
        "data": part("--section=data", "--schema=public", *ours, *rows),
        "post": part("--section=post-data", "--schema=public", *ours),
    }
    return "".join(f"-- == {name}\n{text}" for name, text in parts.items())


def tokens(main: str, origin: str) -> list[tuple[str, str]]:
    found = []
    for place, dsn in (("main", main), ("origin", origin)):
        with psycopg.connect(dsn) as conn:
            ((system, database, role),) = conn.execute(
                "SELECT s.system_identifier::text, d.oid, current_user::regrole::oid "
                "FROM pg_control_system() AS s, pg_database AS d WHERE d.datname = current_database()"
            ).fetchall()
        found.append((f"{system}/{database}", f"@instance({place})@"))
        found.append((f"{system}/{role}", "@creator@"))
    return found


def oids(dsn: str) -> str:
    """Comments that say which tables have to get which oids."""
    with psycopg.connect(dsn) as conn:
        rows = conn.execute(
            "SELECT c.oid::int8, n.nspname || '.' || c.relname FROM pg_class AS c "
            "JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'f') AND "
            "(n.nspname = 'public' OR n.nspname = 'pgtrickle_changes' AND starts_with(c.relname, 'mirror_')) ORDER BY 1"
        ).fetchall()
    return "".join(f"-- oid {oid} {name}\n" for oid, name in rows)


def plain(text: str) -> str:
    """Without what only psql understands, and without what every database has."""
    lines = [line for line in text.splitlines() if not line.startswith("\\")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="src of the checkout whose catalog is wanted")
    parser.add_argument("--name", required=True, help="of the fixture, as v1")
    given = parser.parse_args()
    with EmbeddedPostgres.create(durable=False) as server:
        prepare_server(server)
        created, other = (create_database(server, name) for name in (MAIN, ORIGIN))
        create_foreign_server(created)
        main, origin = created.dsn, other.dsn
        build(given.source.resolve(), server.dsn(), main, origin)
        replaced = tokens(main, origin)
        for place, dsn in (("main", main), ("origin", origin)):
            text = oids(dsn) + plain(dump(dsn))
            for value, token in replaced:
                text = text.replace(value, token)
            FIXTURES.joinpath(f"{given.name}_{place}.sql").write_text(text)
    (query,) = given.source.rglob("fingerprints.sql")
    FIXTURES.joinpath(f"{given.name}_fingerprints.sql").write_text(query.read_text())


if __name__ == "__main__":
    main()
