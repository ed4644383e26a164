"""A TPC-H database: its tables, the 22 queries, the refresh functions RF1 and RF2, and updates on all eight tables.

Order keys are sparse (8 of every 32 are used), which is where the specification puts new orders too: RF1 copies orders
with their items to keys 8 higher, changed enough that no two of them tie.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

HERE = Path(__file__).parent
TABLES = ("region", "nation", "part", "supplier", "partsupp", "customer", "orders", "lineitem")
QUERIES = {path.stem: path.read_text().strip() for path in sorted((HERE / "queries").glob("*.sql"))}

ORDERS = 1_500_000  # at scale 1
CYCLES = 5


def generate(folder: Path, scale: float) -> None:
    """CSV files of all tables; `tpchgen-cli` needs no network."""
    program = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([program, "csv", "-s", str(scale), f"--output-dir={folder}"], check=True, capture_output=True)


def load(conn: psycopg.Connection[Any], folder: Path) -> None:
    conn.execute((HERE / "schema.sql").read_text())
    for table in TABLES:
        copy = sql.SQL("COPY {} FROM STDIN (FORMAT csv, HEADER)").format(sql.Identifier(table))
        with (folder / f"{table}.csv").open("rb") as file, conn.cursor().copy(copy) as into:
            while piece := file.read(1 << 20):
                into.write(piece)
    conn.execute((HERE / "indexes.sql").read_text())
    for table in TABLES:
        conn.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(table)))


# -- changes
# ------------------------------------------------------------------------------------------------------------------

# %(every)s: one block of keys in so many; %(cycle)s: which. Blocks of a cycle are taken once, so its new keys are free.
RF1 = (
    """
INSERT INTO orders
SELECT o_orderkey + 8, o_custkey, o_orderstatus, o_totalprice + 0.01 * (1 + o_orderkey %% 89),
       o_orderdate + (o_orderkey / 32 %% 29)::int - 14, o_orderpriority, o_clerk, o_shippriority, o_comment
FROM orders
WHERE o_orderkey / 32 %% %(every)s = %(cycle)s AND o_orderkey %% 32 < 8
""",
    """
INSERT INTO lineitem
SELECT l_orderkey + 8, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice + 0.01 * (1 + l_orderkey %% 97),
       l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate + (l_orderkey / 32 %% 29)::int - 14, l_commitdate,
       l_receiptdate + (l_orderkey / 32 %% 29)::int - 14, l_shipinstruct, l_shipmode, l_comment
FROM lineitem
WHERE l_orderkey / 32 %% %(every)s = %(cycle)s AND l_orderkey %% 32 < 8
""",
)
RF2 = (
    "DELETE FROM lineitem WHERE l_orderkey / 32 %% %(every)s = %(every)s - 1 - %(cycle)s AND l_orderkey %% 32 < 8",
    "DELETE FROM orders WHERE o_orderkey / 32 %% %(every)s = %(every)s - 1 - %(cycle)s AND o_orderkey %% 32 < 8",
)
UPDATES = (
    "UPDATE region SET r_comment = 'cycle ' || %(cycle)s WHERE r_regionkey = %(cycle)s %% 5",
    "UPDATE nation SET n_regionkey = (n_regionkey + 1) %% 5 WHERE n_nationkey = (7 * %(cycle)s) %% 25",
    "UPDATE supplier SET s_acctbal = s_acctbal + 1, s_nationkey = (s_nationkey + 1) %% 25 "
    "WHERE s_suppkey %% 41 = %(cycle)s",
    "UPDATE supplier SET s_comment = CASE WHEN s_comment LIKE '%%Customer%%Complaints%%' THEN 'content' "
    "ELSE 'Customer has Complaints' END WHERE s_suppkey %% 67 = %(cycle)s",
    "UPDATE customer SET c_acctbal = c_acctbal - 10, c_mktsegment = 'BUILDING', c_phone = '13' || substr(c_phone, 3) "
    "WHERE c_custkey %% 173 = %(cycle)s",
    "UPDATE part SET p_size = 15, p_type = 'ECONOMY ANODIZED STEEL', p_container = 'MED BOX', p_brand = 'Brand#23' "
    "WHERE p_partkey %% 211 = %(cycle)s",
    "UPDATE part SET p_name = 'forest green ' || left(p_name, 30) WHERE p_partkey %% 223 = %(cycle)s",
    "UPDATE part SET p_brand = 'Brand#12', p_container = 'SM BOX', p_size = 3 WHERE p_partkey %% 229 = %(cycle)s",
    "UPDATE partsupp SET ps_supplycost = ps_supplycost + 0.5, ps_availqty = ps_availqty + 1 "
    "WHERE (ps_partkey + ps_suppkey) %% 307 = %(cycle)s",
    "UPDATE orders SET o_orderpriority = '1-URGENT', o_comment = 'special packages requests' "
    "WHERE o_orderkey %% 1009 = %(cycle)s",
    "UPDATE lineitem SET l_quantity = l_quantity %% 50 + 1, l_discount = 0.06, l_shipmode = 'AIR', "
    "l_receiptdate = l_receiptdate + 10 WHERE l_orderkey %% 907 = %(cycle)s AND l_linenumber <= 2",
    "UPDATE lineitem SET l_quantity = 5, l_shipmode = 'AIR', l_shipinstruct = 'DELIVER IN PERSON' "
    "WHERE l_partkey %% 229 = %(cycle)s AND l_linenumber = 1",
    # Large orders are rare: some become one, so that Q18 moves.
    "UPDATE lineitem SET l_quantity = 50 WHERE l_orderkey IN (SELECT l_orderkey FROM lineitem "
    "GROUP BY l_orderkey HAVING count(*) = 7 ORDER BY l_orderkey OFFSET 3 * %(cycle)s LIMIT 2)",
)


def cycle(conn: psycopg.Connection[Any], number: int, *, share: float = 0.001) -> None:
    """RF1 and RF2, each of `share` of the orders, and updates on all tables, in three transactions."""
    # Every block of 32 keys has 8 orders.
    every = max(round(1 / share), 2 * CYCLES)
    for statements in (RF1, RF2, UPDATES):
        run(conn, statements, every=every, cycle=number)


def run(conn: psycopg.Connection[Any], statements: Sequence[str], **values: int) -> int:
    """In one transaction; the number of rows that changed."""
    with conn.transaction():
        return sum(conn.execute(s.encode(), values).rowcount for s in statements)
