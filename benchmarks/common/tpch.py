"""The TPC-H database of tests/tpch at any scale, and changes of a given share in the manner of RF1 and RF2."""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from common.harness import Bench, note

# A benchmark is started from anywhere; what it shares with the tests lies below the project's root.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.tpch.database import QUERIES as ALL_QUERIES
from tests.tpch.database import generate, load

QUERIES = {name: query for name, query in ALL_QUERIES.items() if name != "q15_view"}

MOST_COPIES = 3
KEYS = "(SELECT 32 * b + i FROM unnest(%s::bigint[]) AS b, generate_series(0, 7) AS i)"
INSERT_ORDERS = f"""
INSERT INTO orders
SELECT o_orderkey + %s, o_custkey, o_orderstatus, o_totalprice + 0.01 * (1 + o_orderkey %% 89),
       o_orderdate + (o_orderkey / 32 %% 29)::int - 14, o_orderpriority, o_clerk, o_shippriority, o_comment
FROM orders
WHERE o_orderkey IN {KEYS}
"""
INSERT_ITEMS = f"""
INSERT INTO lineitem
SELECT l_orderkey + %s, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice + 0.01 * (1 + l_orderkey %% 97),
       l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate + (l_orderkey / 32 %% 29)::int - 14, l_commitdate,
       l_receiptdate + (l_orderkey / 32 %% 29)::int - 14, l_shipinstruct, l_shipmode, l_comment
FROM lineitem
WHERE l_orderkey IN {KEYS}
"""
DELETES = (f"DELETE FROM lineitem WHERE l_orderkey IN {KEYS}", f"DELETE FROM orders WHERE o_orderkey IN {KEYS}")
UPDATES = (
    f"UPDATE orders SET o_totalprice = o_totalprice + 0.01, o_shippriority = 1 WHERE o_orderkey IN {KEYS}",
    f"UPDATE lineitem SET l_quantity = l_quantity %% 50 + 1, l_extendedprice = l_extendedprice + 1 "
    f"WHERE l_orderkey IN {KEYS}",
)
# Queries that read neither orders nor lineitem have changes as well.
SMALL_UPDATES = (
    ("customer", "UPDATE customer SET c_acctbal = c_acctbal + 1 WHERE c_custkey = ANY(%s)"),
    ("part", "UPDATE part SET p_retailprice = p_retailprice + 1, p_size = p_size %% 50 + 1 WHERE p_partkey = ANY(%s)"),
    ("supplier", "UPDATE supplier SET s_acctbal = s_acctbal + 1 WHERE s_suppkey = ANY(%s)"),
    (
        "partsupp",
        "UPDATE partsupp SET ps_supplycost = ps_supplycost + 0.25, ps_availqty = ps_availqty + 1 "
        "WHERE ps_partkey = ANY(%s)",
    ),
)


SPARES = """
CREATE SCHEMA spare;
CREATE UNLOGGED TABLE spare.orders (LIKE public.orders);
CREATE UNLOGGED TABLE spare.lineitem (LIKE public.lineitem);
"""
# Statements of `churn`: rows that were set aside come back with other values, others are set aside.
RETURNED = (
    "INSERT INTO orders SELECT o_orderkey, o_custkey, o_orderstatus, o_totalprice + 0.01, o_orderdate, "
    "o_orderpriority, o_clerk, o_shippriority, o_comment FROM spare.orders",
    "INSERT INTO lineitem SELECT l_orderkey, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice + 0.01, "
    "l_discount, l_tax, l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, "
    "l_shipmode, l_comment FROM spare.lineitem",
)
SET_ASIDE = (
    f"WITH gone AS (DELETE FROM lineitem WHERE l_orderkey IN {KEYS} RETURNING *) "
    "INSERT INTO spare.lineitem SELECT * FROM gone",
    f"WITH gone AS (DELETE FROM orders WHERE o_orderkey IN {KEYS} RETURNING *) "
    "INSERT INTO spare.orders SELECT * FROM gone",
)


class Tpch:
    """Loaded; hands out blocks of eight orders, so that new keys are free and old ones are there.

    A block has room for three copies of itself: the first of every block, then the second, then the third.
    """

    def __init__(self, line: Bench, scale: float) -> None:
        self.line = line
        with tempfile.TemporaryDirectory(prefix="tpch") as folder:
            note(f"generating scale {scale}")
            generate(Path(folder), scale)
            note("loading")
            load(line.conn, Path(folder))
        self.rows = {t: int(line.sql(f"SELECT count(*) FROM {t}")[0][0]) for t in ("orders", "lineitem", "part")}
        self.rows |= {t: int(line.sql(f"SELECT count(*) FROM {t}")[0][0]) for t in ("customer", "supplier", "partsupp")}
        self._random = random.Random(1)
        self._blocks: list[int] = []
        self._copy = 1

    def _take(self, count: int) -> list[int]:
        while len(self._blocks) < count:
            # Whole blocks only, and none whose copy is there already.
            self._blocks = [
                row[0]
                for row in self.line.sql(
                    "SELECT o_orderkey / 32 FROM orders GROUP BY 1 HAVING bool_or(o_orderkey %% 32 < 8) "
                    "AND NOT bool_or(o_orderkey %% 32 / 8 = %s) ORDER BY 1",
                    self._copy,
                )
            ]
            self._random.shuffle(self._blocks)
            if len(self._blocks) < count:
                if self._copy == MOST_COPIES:
                    raise SystemExit("there are no orders left to change: fewer rounds, or fewer queries")
                self._copy += 1
        return [self._blocks.pop() for _ in range(count)]

    def change(self, share: float) -> int:
        """A third new orders with their items, a third deleted, a third updated; and some rows of the other tables."""
        count = max(1, round(self.rows["orders"] / 8 * share / 3))
        taken = self._take(3 * count)
        new, old, changed = taken[:count], taken[count : 2 * count], taken[2 * count :]
        conn = self.line.conn
        rows = 0
        with conn.transaction():
            rows += conn.execute(INSERT_ORDERS.encode(), (8 * self._copy, new)).rowcount
            rows += conn.execute(INSERT_ITEMS.encode(), (8 * self._copy, new)).rowcount
        with conn.transaction():
            rows += sum(conn.execute(s.encode(), (old,)).rowcount for s in DELETES)
        with conn.transaction():
            rows += self._update(changed, share)
        return rows

    def churn(self, share: float) -> int:
        """Like `change`, as often as one likes and for any share: the new orders are those that the call before has
        deleted, with other prices. Not to be mixed with `change`, whose copies have their keys."""
        conn, count = self.line.conn, max(1, round(self.rows["orders"] / 8 * share / 3))
        if not self.line.sql("SELECT FROM pg_catalog.pg_namespace WHERE nspname = 'spare'"):
            self.line.sql(SPARES)
        blocks = self.rows["orders"] // 8
        taken = self._random.sample(range(1, blocks), min(2 * count, blocks - 1))
        rows = 0
        with conn.transaction():
            rows += sum(conn.execute(s.encode()).rowcount for s in RETURNED)
            conn.execute("TRUNCATE spare.orders, spare.lineitem")
        with conn.transaction():
            rows += sum(conn.execute(s.encode(), (taken[:count],)).rowcount for s in SET_ASIDE)
        with conn.transaction():
            return rows + self._update(taken[count:], share)

    def _update(self, blocks: list[int], share: float) -> int:
        conn = self.line.conn
        rows = sum(conn.execute(s.encode(), (blocks,)).rowcount for s in UPDATES)
        for table, statement in SMALL_UPDATES:
            per_key = 4 if table == "partsupp" else 1
            keys = self.rows["part"] if table == "partsupp" else self.rows[table]
            some = self._random.sample(range(1, keys + 1), max(1, round(self.rows[table] * share / per_key)))
            rows += conn.execute(statement.encode(), (some,)).rowcount
        return rows
