"""Databases of an earlier version: their stream tables, what is written to them, and how they are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
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
# That of the second: all but the one in mode FULL are maintained from changes again.
SECOND_MODES = {**dict.fromkeys(MODES, "DIFFERENTIAL"), "latest": "FULL"}
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
    # after the first refresh of the upgraded database
    """
    INSERT INTO orders VALUES (401, 7, 1000, '2026-08-01');
    UPDATE orders SET amount = amount + 1 WHERE id BETWEEN 20 AND 24;
    DELETE FROM orders WHERE id = 201;
    UPDATE customers SET region = 'far', name = 'again' WHERE id = 5;
    INSERT INTO edges VALUES (5, 9);
    UPDATE codes SET kind = 'z' WHERE id = 3;
    UPDATE "Odd ""name"" 100%" SET "ü 1" = 7 WHERE id = 1;
    """,
)
ORIGIN_WRITES = (
    "UPDATE parts SET price = 9 WHERE id = 5",
    "INSERT INTO parts VALUES (20, 'during', 3)",
    "DELETE FROM parts WHERE id = 1",
    "INSERT INTO parts VALUES (21, 'late', 30); DELETE FROM parts WHERE id = 6",
)


REMOTE = ("offers",)  # a plain session does not understand the query
# By PostgreSQL's equality, along the path of this session. totals: a sum of numerics without a declared scale, 1.5 is
# 1.50. there: version 1 stored the path of the control plane for definitions over foreign tables.
BY_EQUALITY = {"totals": "total, n", "there": "id, price"}


# What WRITES and ORIGIN_WRITES write to. Triggers of version 1 mark each write after the upgrade instead of recording
# it, until a refresh replaces them: its readers read the table again.
WRITTEN = {"orders", "customers", "edges", "codes", "parts", '"Odd ""name"" 100%"'}

# Buffers and their tables, and the captured columns as texts.
_CAPTURED = """
SELECT b.oid::regclass::text, s.oid::regclass::text,
       string_agg(format('%I::text', a.attname), ', ' ORDER BY a.attnum),
       string_agg(format('%I::text', c.attname), ', ' ORDER BY a.attnum)
FROM pg_class AS b
JOIN pg_class AS s ON b.relname = 'changes_' || s.oid
JOIN pg_attribute AS a ON a.attrelid = s.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_attribute AS c ON c.attrelid = b.oid AND c.attname = 'c' || a.attnum
WHERE b.relnamespace = 'pgtrickle_changes'::regnamespace
GROUP BY b.oid, s.oid
"""


@dataclass(frozen=True)
class Earlier:
    """The databases of a fixture."""

    version: int
    main: Database
    origin: Database

    def write(self, step: int) -> None:
        """A writer that an upgrade blocks fails here: the transaction of the upgrade ends after it."""
        for database, text in ((self.main, WRITES[step]), (self.origin, ORIGIN_WRITES[step])):
            with database.connect(options="-c lock_timeout=120s") as conn:
                conn.execute(text)

    def before_changes(self) -> dict[str, Counter[tuple[str, ...]]]:
        """The rows of each captured table less the changes in its buffer: what the frontiers have seen of it. A write
        does not alter it, unless a change is missing in the buffer, or is there twice."""
        found = {}
        for database, buffer, table, columns, captured in self._captured():
            rows = Counter(database.sql(f"SELECT {columns} FROM {table}"))
            for action, *row in database.sql(f"SELECT action, {captured} FROM {buffer} WHERE action <> 'T'"):
                rows[tuple(row)] += 1 if action == "D" else -1
            found[table] = Counter({row: n for row, n in rows.items() if n})
        return found

    def marked(self) -> set[str]:
        """The tables that readers have to read again as a whole."""
        return {t for d, b, t, *_ in self._captured() if d.sql(f"SELECT FROM {b} WHERE action = 'T' LIMIT 1")}

    def _captured(self) -> Iterator[tuple[Database, str, str, str, str]]:
        for database in (self.main, self.origin):
            for row in database.sql(_CAPTURED):
                yield database, *row

    def content(self) -> dict[str, list[tuple[Any, ...]]]:
        return {name: sorted(self.main.sql(f"SELECT * FROM {quote_ident(name)}"), key=repr) for name in MODES}


def upgrade(database: Database) -> None:
    with connect(database.dsn, role="install", as_service=False) as conn:
        install(conn)


def check_refreshed(earlier: Earlier, line: Line) -> None:
    """The first refresh is as MODES says and the second one from changes, each one works, and each table is then equal
    to its query."""
    _check_round(line, MODES)
    earlier.write(3)
    _check_round(line, SECOND_MODES)


def _check_round(line: Line, modes: Mapping[str, str]) -> None:
    ((begun,),) = line.sql("SELECT clock_timestamp()")
    line.edit_catalog("UPDATE pgtrickle.pgt_stream_tables SET refresh_requested_at = clock_timestamp()")
    line.tick()
    line.tick()  # what reads a mirror that has moved just now
    for name, mode in modes.items():
        actions = line.sql(
            "SELECT h.action, h.status FROM pgtrickle.pgt_refresh_history AS h "
            "JOIN pgtrickle.pgt_stream_tables USING (pgt_id) WHERE pgt_name = %s AND h.start_time > %s "
            "AND h.action <> 'NO_DATA' ORDER BY h.refresh_id",
            name,
            begun,
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
