"""Databases of an earlier version: their stream tables, what is written to them, and how they are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgtrickle.db import connect, install
from pgtrickle.maintain.verify import verify_tables
from pgtrickle.model.identifiers import quote_ident
from tests.conftest import Database
from tests.line import Line, as_author
from tests.migration.make_fixture import ODD

# The action of the first refresh after an upgrade: the database computes the identity of rows now (ADR 26), so the rows
# of each table are loaded again, by difference.
MODES = dict.fromkeys(
    (
        "big_orders",
        "by_region",
        "top_orders",
        "reachable",
        "ranked",
        "regions",
        "totals",
        "latest",
        "names",
        "codes_listed",
        "codes_by_kind",
        ODD,
        "there",
        "offers",
    ),
    "REINITIALIZE",
)
WRITES = (
    # before the upgrade, through the triggers of the earlier version
    """
    INSERT INTO orders VALUES (101, 3, 77, '2026-05-01'), (102, 4, 0.5, NULL);
    UPDATE orders SET amount = amount * 2 WHERE id % 7 = 0;
    UPDATE customers SET region = 'east', name = 'moved' WHERE id = 2;
    INSERT INTO edges VALUES (6, 1);
    UPDATE codes SET code = 'd   ', kind = 'y' WHERE id = 2;
    UPDATE "Odd ""name"" 100%" SET "select" = 'other' WHERE id = 4;
    """,
    # while it is under way
    """
    INSERT INTO orders VALUES (201, 5, 500, '2026-06-01');
    DELETE FROM orders WHERE id IN (7, 12);
    UPDATE customers SET name = name || '!' WHERE id < 4;
    DELETE FROM edges WHERE a = 2;
    DELETE FROM codes WHERE id = 1;
    DELETE FROM "Odd ""name"" 100%" WHERE id = 5;
    """,
    # after it
    """
    INSERT INTO orders VALUES (301, 6, 12.5, '2026-07-01');
    UPDATE orders SET customer = 9 WHERE id = 30;
    INSERT INTO customers VALUES (10, 'new', 'north');
    INSERT INTO edges VALUES (3, 5);
    INSERT INTO codes VALUES (5, 'a  ', 'x');
    INSERT INTO "Odd ""name"" 100%" VALUES (11, NULL, 3);
    """,
)
ORIGIN_WRITES = (
    "UPDATE parts SET price = 9 WHERE id = 5",
    "INSERT INTO parts VALUES (20, 'during', 3)",
    "DELETE FROM parts WHERE id = 1",
)


REMOTE = ("offers",)  # a plain session does not understand the query
# By PostgreSQL's equality, along the path of this session. totals: a sum of numerics without a declared scale, 1.5 is
# 1.50. there: version 1 stored the path of the control plane for definitions over foreign tables.
BY_EQUALITY = {"totals": "total, n", "there": "id, price"}


@dataclass(frozen=True)
class Earlier:
    """The databases of a fixture."""

    version: int
    main: Database
    origin: Database

    def write(self, step: int) -> None:
        """Without waiting for anybody: a writer that an upgrade blocks fails here."""
        for database, text in ((self.main, WRITES[step]), (self.origin, ORIGIN_WRITES[step])):
            with database.connect(options="-c lock_timeout=2s -c statement_timeout=20s") as conn:
                conn.execute(text)

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: sorted(self.main.sql(f"SELECT * FROM {quote_ident(name)}"), key=repr) for name in MODES}


def upgrade(database: Database) -> None:
    with connect(database.dsn, role="install", as_service=False) as conn:
        install(conn)


def check_refreshed(line: Line) -> None:
    """The first refresh is as MODES says, each one works, and the table is equal to the query."""
    line.sql("UPDATE pgtrickle.pgt_stream_tables SET refresh_requested_at = clock_timestamp()")
    line.tick()
    line.tick()  # what reads a mirror that has moved just now
    for name, mode in MODES.items():
        actions = line.sql(
            "SELECT h.action, h.status FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = %s AND h.start_time > %s "
            "AND h.action <> 'NO_DATA' ORDER BY h.refresh_id",
            name,
            line.sql("SELECT max(installed_at) FROM pgtrickle.pgt_schema_version")[0][0],
        )
        assert actions[:1] == [(mode, "COMPLETED")], (name, actions, line.last(name))
        assert {status for _, status in actions} == {"COMPLETED"}, (name, actions, line.last(name))
        assert not [r for r in verify_tables(line.dsn, [name], timeout_seconds=1) if not r.ok]
        if name in BY_EQUALITY:
            ((query,),) = line.sql("SELECT original_query FROM pgtrickle.pgt_stream_tables WHERE pgt_name = %s", name)
            stored = f"SELECT {BY_EQUALITY[name]} FROM {name}"
            for one, other in ((query, stored), (stored, query)):
                assert line.sql(f"({one}) EXCEPT ALL ({other})") == [], name
        elif name not in REMOTE:
            assert not (found := as_author(line.conn, name)), (name, found)
