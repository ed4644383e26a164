"""The shop's customers and clerks: transactions of all kinds, for the demo and the tests.

Each kind is one function that writes and returns how many rows it changed; the caller commits. Some are meant to
roll back.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import connect, translated
from pgtrickle.errors import PgtrickleError, TransientError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


class _Regret(Exception):
    """Raised to roll back a transaction: the customer changed their mind."""


@dataclass(slots=True)
class Tally:
    """What the workload has done so far; written by its thread only, read by the view."""

    committed: int = 0
    rolled_back: int = 0
    changed_rows: int = 0
    error: str | None = None


def place_order(conn: Connection, rng: random.Random) -> int:
    """Several statements in one transaction."""
    row = conn.execute(
        "INSERT INTO orders (customer_id, channel) "
        "SELECT id, %s FROM customers WHERE id >= %s ORDER BY id LIMIT 1 RETURNING id",
        [rng.choice(["web", "app", "phone", None]), rng.randint(1, 2000)],
    ).fetchone()
    if row is None:
        return 0
    changed = 1
    for line in range(1, rng.randint(2, 5)):
        changed += conn.execute(
            "INSERT INTO order_items (order_id, line, product_id, quantity, unit_price) "
            "SELECT %s, %s, id, %s, price FROM products WHERE id = %s",
            [row[0], line, rng.randint(1, 4), rng.randint(1, 500)],
        ).rowcount
    return changed


def advance_orders(conn: Connection, rng: random.Random) -> int:
    """One statement that changes several rows."""
    return conn.execute(
        "UPDATE orders SET status = CASE status WHEN 'new' THEN 'paid' ELSE 'shipped' END "
        "WHERE id IN (SELECT id FROM orders WHERE status IN ('new', 'paid') ORDER BY id DESC LIMIT %s)",
        [rng.randint(1, 8)],
    ).rowcount


def cancel_order(conn: Connection, rng: random.Random) -> int:
    return conn.execute("UPDATE orders SET status = 'cancelled' WHERE id = %s", [rng.randint(1, 20_000)]).rowcount


def delete_order(conn: Connection, rng: random.Random) -> int:
    """The items are deleted by the cascade of the foreign key."""
    return conn.execute("DELETE FROM orders WHERE id = %s", [rng.randint(1, 20_000)]).rowcount


def change_prices(conn: Connection, rng: random.Random) -> int:
    """Products and the open items of them, so that extremes come and go."""
    product = rng.randint(1, 500)
    factor = rng.choice(["0.80", "0.95", "1.05", "1.25"])
    changed = conn.execute(
        "UPDATE products SET price = greatest(1, least(900, round(price * %s::numeric, 2))) WHERE id = %s",
        [factor, product],
    ).rowcount
    return (
        changed
        + conn.execute(
            "UPDATE order_items AS i SET unit_price = p.price FROM products AS p, orders AS o "
            "WHERE p.id = %s AND i.product_id = p.id AND o.id = i.order_id AND o.status = 'new'",
            [product],
        ).rowcount
    )


def move_customer(conn: Connection, rng: random.Random) -> int:
    """To another country, or to none; every order of the customer changes its group."""
    return conn.execute(
        "UPDATE customers SET country = (SELECT country FROM regions ORDER BY country LIMIT 1 OFFSET %s) WHERE id = %s",
        [rng.randint(0, 14), rng.randint(1, 2000)],
    ).rowcount


def half_regret(conn: Connection, rng: random.Random) -> int:
    """A subtransaction rolls back, the rest commits."""
    changed = place_order(conn, rng)
    try:
        with conn.transaction():
            delete_order(conn, rng)
            move_customer(conn, rng)
            raise _Regret
    except _Regret:
        return changed


def regret(conn: Connection, rng: random.Random) -> int:
    place_order(conn, rng)
    change_prices(conn, rng)
    raise _Regret


def stocktaking(conn: Connection, rng: random.Random) -> int:
    """A larger statement: some hundred rows."""
    first = rng.randint(1, 19_900)
    return conn.execute(
        "UPDATE order_items SET quantity = 1 + (quantity + 1) %% 5 WHERE order_id BETWEEN %s AND %s",
        [first, first + 60],
    ).rowcount


Kind = Callable[["Connection", random.Random], int]
KINDS: tuple[tuple[Kind, int], ...] = (
    (place_order, 40),
    (advance_orders, 20),
    (cancel_order, 8),
    (delete_order, 6),
    (change_prices, 8),
    (move_customer, 4),
    (half_regret, 5),
    (regret, 6),
    (stocktaking, 1),
)


class Workload:
    """A thread that keeps writing until `stop`."""

    def __init__(self, dsn: str, *, rng: random.Random, pause_s: float) -> None:
        self._dsn = dsn
        self._rng = rng
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self.tally = Tally()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the last transaction has ended."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with connect(self._dsn, role="shop", autocommit=True, as_service=False) as conn, translated():
                    conn.execute("SET search_path = public")
                    while not self._stop.is_set():
                        self._transact(conn)
                        self._stop.wait(self._rng.uniform(0, 2 * self._pause_s))
            except TransientError:
                self._stop.wait(0.5)  # the server restarts: reconnect, as a shop would
            except PgtrickleError as error:
                self.tally.error = error.one_line()
                return

    def _transact(self, conn: Connection) -> None:
        kinds, weights = zip(*KINDS, strict=True)
        kind: Kind = self._rng.choices(kinds, weights)[0]
        try:
            with conn.transaction():
                changed = kind(conn, self._rng)
        except _Regret:
            self.tally.rolled_back += 1
            return
        self.tally.committed += 1
        self.tally.changed_rows += changed
