"""A consumer of a change feed, as the how-to page describes it: a copy in a table of its own, and a loop."""

from __future__ import annotations

from typing import Any

import psycopg

Row = tuple[str, str, dict[str, Any]]


class Consumer:
    """Keeps `copy`, a table with the visible columns of a stream table."""

    def __init__(self, conn: psycopg.Connection[Any], table: str, name: str, copy: str) -> None:
        self.conn, self.table, self.name, self.copy = conn, table, name, copy
        self.resets = 0
        conn.execute("SELECT pgtrickle.create_subscriber(%s, %s)", (table, name))

    def read(self, max_rows: int = 10_000) -> list[Row]:
        return self.conn.execute(
            "SELECT lsn::text, action, row FROM pgtrickle.read_changes(%s, %s, %s)", (self.table, self.name, max_rows)
        ).fetchall()

    def acknowledge(self, lsn: str) -> bool:
        row = self.conn.execute(
            "SELECT pgtrickle.acknowledge_changes(%s, %s, %s)", (self.table, self.name, lsn)
        ).fetchone()
        assert row is not None
        return bool(row[0])

    def apply(self, max_rows: int = 10_000) -> int:
        """One batch: applied and acknowledged, or neither. Returns its rows."""
        with self.conn.transaction():
            self.conn.execute(
                "CREATE TEMP TABLE batch ON COMMIT DROP AS SELECT * FROM pgtrickle.read_changes(%s, %s, %s)",
                (self.table, self.name, max_rows),
            )
            (count, lsn, is_reset) = self.conn.execute(
                "SELECT count(*), max(lsn)::text, coalesce(bool_or(action = 'reset'), false) FROM batch"
            ).fetchone() or (0, "", False)
            if not count:
                return 0
            if is_reset:
                self.resets += 1
                self.conn.execute(f"DELETE FROM {self.copy}")
            # Of equal rows as many as there are to go.
            gone = self.conn.execute(
                f"DELETE FROM {self.copy} WHERE ctid = ANY (ARRAY(SELECT v.place FROM ("
                "SELECT c.ctid AS place, d.number, row_number() OVER (PARTITION BY c.image) AS copy FROM ("
                f'SELECT ctid, whole::text COLLATE "C" AS image FROM {self.copy} AS whole) AS c JOIN ('
                f'SELECT (json_populate_record(NULL::{self.copy}, row))::text COLLATE "C" AS image, count(*) AS number '
                "FROM batch WHERE action = 'delete' GROUP BY 1) AS d ON d.image = c.image) AS v "
                "WHERE v.copy <= v.number))"
            ).rowcount
            assert self.conn.execute("SELECT count(*) FROM batch WHERE action = 'delete'").fetchone() == (gone,)
            self.conn.execute(
                f"INSERT INTO {self.copy} SELECT (json_populate_record(NULL::{self.copy}, row)).* "
                "FROM batch WHERE action = 'insert'"
            )
            assert self.acknowledge(lsn)
        return int(count)

    def catch_up(self, max_rows: int = 10_000) -> int:
        """Batches until nothing is left."""
        batches = 0
        while self.apply(max_rows):
            batches += 1
        return batches

    def check(self) -> None:
        """The copy equals the stream table, to the byte, both ways."""
        (columns,) = self.conn.execute(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attname !~ '^__pgt_'",
            (self.table,),
        ).fetchone() or ("",)
        here, there = f"SELECT ROW({columns})::text FROM {self.table}", f"SELECT ROW({columns})::text FROM {self.copy}"
        for one, other in ((here, there), (there, here)):
            assert self.conn.execute(f"{one} EXCEPT ALL {other}").fetchall() == []
