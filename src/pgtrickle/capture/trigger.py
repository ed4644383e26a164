"""The text of buffers and capture functions. Pure.

A capture function must not fail, whatever happens to its table, because the writer would fail with it. PL/pgSQL parses
a statement when it first runs it, so the function asks first whether the columns that it names still have their
numbers and types. If not, it writes a 'T' row, which makes the next refresh FULL; the control plane finds the changed
fingerprint and writes the function anew. Asking the catalog at each call would cost 7 to 14 us, half of a single-row
transaction; `_intact` with constant arguments is folded into the plan instead and costs nothing until the table is
altered. Only writes that name a partition or a child ask at run time.

Measured (PostgreSQL 18, fsync off, five columns and a primary key, against no trigger): 100k-row insert/update without
an index on the buffer 1.4x/1.6x, with a btree on xid 1.9-2.1x/2.3x; BRIN has no operator class for xid8. Single-row
transactions reach 68-75 % of the throughput either way. So a buffer starts without an index, which a short one does not
need, and gets it, concurrently, when a slow reader makes it long: see capture/trim.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgtrickle.model.identifiers import buffer_name, capture_function_name, quote_ident

# A scheduler that holds this advisory lock is to be notified on this channel: see ADR 35.
WAKE_LOCK = 0x7067_7761  # "pgwa"
WAKE_CHANNEL = "pgtrickle_changed"


@dataclass(frozen=True, slots=True)
class CapturedColumn:
    """A column of the source: its type is the base type without modifier, so that storing a value cannot fail."""

    attnum: int
    name: str
    type: str
    collation: str | None
    typid: int
    declared: int
    routes: bool  # in the key of a partitioned table

    @property
    def definition(self) -> str:
        collate = f" COLLATE {self.collation}" if self.collation else ""
        return f"c{self.attnum} {self.type}{collate}"


def literal(text: str) -> str:
    """A string constant with the same meaning for every value of standard_conforming_strings."""
    quoted = text.replace("'", "''")
    return f" E'{quoted.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{quoted}'"


def _element(name: str) -> str:
    """An element of an array constant inside a string constant."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def create_buffer(relid: int, columns: Sequence[CapturedColumn]) -> list[str]:
    """Rows are appended, read once or twice, deleted in batches: no free space, vacuum by count and not by share."""
    buffer = buffer_name(relid)
    definitions = [
        "xid xid8 NOT NULL",
        "lsn pg_lsn NOT NULL",
        'action "char" NOT NULL',
        *(c.definition for c in columns),
    ]
    return [
        f"CREATE TABLE {buffer} ({', '.join(definitions)}) WITH (fillfactor = 100, autovacuum_vacuum_scale_factor = 0, "
        "autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_insert_threshold = -1, "
        # truncating the file would block writers for a moment
        "autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000, vacuum_truncate = off)",
        # a publication FOR ALL TABLES would otherwise forbid our DELETEs
        f"ALTER TABLE {buffer} REPLICA IDENTITY FULL",
        f"REVOKE ALL ON {buffer} FROM PUBLIC",
    ]


def function_source(relid: int, columns: Sequence[CapturedColumn]) -> str:
    """The body of the capture function. It works on the source, its partitions and its children: columns go by name.

    A row that moves to another partition is in the transition tables of UPDATE, unless MERGE moves it: then readers
    load the table again (ADR 42).

    Its last statement wakes a scheduler that waits (ADR 35). A writer neither waits nor fails because of it: the lock
    is only tried; a transaction that notified could not be prepared; a full queue of notifications fails the commit.
    """
    buffer = buffer_name(relid)
    targets = ", ".join(["xid", "lsn", "action", *(f"c{c.attnum}" for c in columns)])
    stamp = "pg_catalog.pg_current_xact_id(), pg_catalog.pg_current_wal_insert_lsn()"

    def row(action: str, prefix: str) -> str:
        return ", ".join([stamp, f"'{action}'", *(f"{prefix}.{quote_ident(c.name)}" for c in columns)])

    def images(action: str, transition: str) -> str:
        return f"INSERT INTO {buffer} ({targets}) SELECT {row(action, transition)} FROM {transition};"

    def image(action: str, record: str) -> str:
        return f"INSERT INTO {buffer} ({targets}) VALUES ({row(action, record)});"

    marker = f"INSERT INTO {buffer} (xid, lsn, action) VALUES ({stamp}, 'T');"
    names = literal("{" + ",".join(_element(c.name) for c in columns) + "}") + "::pg_catalog.name[]"
    types = "'{" + ",".join(str(c.declared) for c in columns) + "}'::pg_catalog.oid[]"
    numbers = "'{" + ",".join(str(c.attnum) for c in columns) + "}'::pg_catalog.int2[]"
    source = f"'{relid:d}'::pg_catalog.regclass"
    moves = _moves(relid, [c for c in columns if c.routes], marker)
    return f"""
#variable_conflict use_column
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' OR NOT (
        CASE WHEN TG_RELID OPERATOR(pg_catalog.=) '{relid:d}'::pg_catalog.oid
             THEN pgtrickle._intact({source}, {source}, {names}, {types}, {numbers})
             ELSE pgtrickle._intact(TG_RELID::pg_catalog.regclass, {source}, {names}, {types}, {numbers}) END
    ) THEN
        {marker}
    ELSIF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
        IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
            {images("D", "pgt_old")}
        END IF;
        IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
            {images("I", "pgt_new")}
        END IF;{moves}
    ELSE
        IF TG_OP OPERATOR(pg_catalog.<>) 'INSERT' THEN
            {image("D", "OLD")}
        END IF;
        IF TG_OP OPERATOR(pg_catalog.<>) 'DELETE' THEN
            {image("I", "NEW")}
        END IF;
    END IF;
    IF pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0'
       AND NOT pg_catalog.pg_try_advisory_xact_lock_shared({WAKE_LOCK}) THEN
        IF pg_catalog.pg_notification_queue_usage() OPERATOR(pg_catalog.<) 0.5::pg_catalog.float8 THEN
            PERFORM pg_catalog.pg_notify('{WAKE_CHANNEL}', '');
        END IF;
    END IF;
    RETURN NULL;
END
"""


def _moves(relid: int, keys: Sequence[CapturedColumn], marker: str) -> str:
    """Writes the marker if rows have moved that are not in the transition tables of UPDATE.

    Both tables have the images of a row at the same position, unless a trigger of the new partition discarded the row.
    The values in the partition keys decide where a row is, so a pair of such values that was noted for one row
    that moved belongs to no row that stayed.

    A query would cost 7 us per UPDATE: first the function asks for the rows that this session has inserted lately.
    """
    if not keys:
        return ""
    own = (
        f"m.xid OPERATOR(pg_catalog.=) pg_catalog.pg_current_xact_id() AND m.source OPERATOR(pg_catalog.=) '{relid:d}'"
    )
    noted = f"pgtrickle_changes.moves AS m WHERE {own}::pg_catalog.oid"
    listed = ", ".join(quote_ident(c.name) for c in keys)

    def numbered(transition: str) -> str:
        row = f"ROW({listed})::pg_catalog.text AS key"
        return f"(SELECT pg_catalog.row_number() OVER () AS number, {row} FROM {transition})"

    return f"""
        IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND (
            pg_catalog.pg_stat_get_xact_tuples_inserted('pgtrickle_changes.moves'::pg_catalog.regclass)
                OPERATOR(pg_catalog.>) 0::pg_catalog.int8
            OR pg_catalog.current_setting('track_counts') OPERATOR(pg_catalog.<>) 'on'
        ) THEN
            IF EXISTS (SELECT FROM {noted}) AND (
                (SELECT pg_catalog.count(*) FROM pgt_old)
                    OPERATOR(pg_catalog.<>) (SELECT pg_catalog.count(*) FROM pgt_new)
                OR EXISTS (SELECT FROM (
                    SELECT m.old_key, m.new_key, 1 AS missing FROM {noted}
                    UNION ALL
                    SELECT o.key, n.key, -1
                    FROM {numbered("pgt_old")} AS o
                    JOIN {numbered("pgt_new")} AS n ON n.number OPERATOR(pg_catalog.=) o.number
                    WHERE n.key OPERATOR(pg_catalog.<>) o.key
                ) AS e
                GROUP BY e.old_key, e.new_key
                HAVING pg_catalog.sum(e.missing) OPERATOR(pg_catalog.>) 0)
            ) THEN
                {marker}
            END IF;
            DELETE FROM {noted};
        END IF;"""


def create_function(relid: int, source: str, columns: Sequence[CapturedColumn]) -> list[str]:
    """SECURITY DEFINER, because writers have no rights on the buffer.

    The row trigger of a partitioned table is cloned into new partitions, by roles that must have the right to execute
    its function. Nobody can name the function: the schema is closed.

    It does not SET search_path, which would cost every writing statement about 10 us: instead each name and operator in
    it is qualified, so the writer's path decides nothing (test_capture_writes tries a hostile one).
    """
    function, is_cloned = capture_function_name(relid), any(c.routes for c in columns)
    return [
        f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER "
        f"AS {literal(source)}",
        f"COMMENT ON FUNCTION {function}() IS 'Writes the changes of one table to its change buffer.'",
        f"{'GRANT' if is_cloned else 'REVOKE'} ALL ON FUNCTION {function}() {'TO' if is_cloned else 'FROM'} PUBLIC",
    ]


_ENABLE = {"O": "ENABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}


def create_trigger(relid: int, table: str, name: str, event: str, state: str, *, exists: bool) -> list[str]:
    trigger = quote_ident(name)
    made = f"CREATE TRIGGER {trigger} {event % table} EXECUTE FUNCTION {capture_function_name(relid)}()"
    enabled = f"ALTER TABLE ONLY {table} {_ENABLE[state]} TRIGGER {trigger}"
    if exists:
        return [enabled]
    return [made] if state == "O" else [made, enabled]
