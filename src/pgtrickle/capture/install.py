"""Installs, extends and removes capture on tables, with short lock timeouts so that writers do not queue for long."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from pgtrickle.capture.fingerprint import fingerprints
from pgtrickle.capture.trigger import CapturedColumn, create_buffer, create_function, create_trigger, function_source
from pgtrickle.db import Connection, statement, translated
from pgtrickle.errors import InvariantError, SourceChangedError, TransientError
from pgtrickle.model.identifiers import buffer_name, capture_function_name
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode

LOCK_TIMEOUT_MS = 100
DEADLINE_S = 30.0
RETRIED = ("55P03", "40P01")  # lock_not_available, deadlock_detected


@dataclass(frozen=True, slots=True)
class _State:
    table: str
    recorded: bool
    columns: tuple[CapturedColumn, ...]
    buffer: dict[str, int] | None
    source: str | None
    triggers: tuple[dict[str, object], ...]
    strays: tuple[str, ...]


def ensure_capture(
    conn: Connection,
    relid: int,
    attnums: Collection[int],
    *,
    deadline_s: float = DEADLINE_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Captures at least these columns of the table, its partitions and children.

    True when something had to change: then the caller's cut must come after. Adding a column must exclude all writers
    for a moment, because a transaction that has fired the old function would commit rows without it. The lock is
    requested with a timeout of 100 ms and retried with increasing pauses, so that writers wait behind it no longer than
    that. Each try is a transaction of its own, so `conn` must not be in one.
    """
    with translated():
        _require_idle(conn)
        with conn.transaction():
            if not _statements(relid, _read(conn, relid, attnums)):
                return False
        _retried(lambda: _install(conn, relid, attnums), f"capture of table {relid}", deadline_s, clock, sleep)
    return True


def collect_garbage(conn: Connection) -> list[int]:
    """Removes unneeded capture; busy tables are retried later. Returns what was removed."""
    with translated():
        _require_idle(conn)
        with conn.transaction():
            garbage = [row[0] for row in conn.execute(statement("garbage")).fetchall()]
        removed = []
        for relid in garbage:
            try:
                with translated():
                    _remove(conn, relid, only_if_unused=True)
            except TransientError:
                continue
            removed.append(relid)
    return removed


def _require_idle(conn: Connection) -> None:
    if conn.info.transaction_status.name != "IDLE":
        raise InvariantError(
            "capture cannot be installed inside a transaction, which would hold locks on source tables"
        )


def _retried(
    action: Callable[[], None], what: str, deadline_s: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> None:
    end, pause = clock() + deadline_s, 0.02
    while True:
        try:
            with translated():
                return action()
        except TransientError as error:
            if error.sqlstate not in RETRIED:
                raise
            if clock() + pause > end:
                raise TransientError(
                    f"{what}: no lock within {deadline_s:g} s", hint="a long transaction, VACUUM or DDL holds the table"
                ) from error
        sleep(pause)
        pause = min(pause * 1.5, 1.0)


def _read(conn: Connection, relid: int, attnums: Collection[int]) -> _State:
    row = conn.execute(statement("capture_state"), {"relid": relid, "attnums": sorted(set(attnums))}).fetchone()
    if row is None:
        raise SourceChangedError(f"source table {relid} does not exist")
    table, recorded, columns, gone, buffer, source, triggers, foreign, strays = row
    if gone:
        raise SourceChangedError(f"{table} lacks columns that are needed: attribute numbers {gone}")
    if foreign:
        raise NotDifferentiableError(Reason.of(ReasonCode.CHILD_NOT_TABLE, child=foreign, relation=table))
    captured = tuple(CapturedColumn(**c) for c in columns)
    return _State(table, recorded, captured, buffer, source, tuple(triggers), tuple(strays))


def _statements(relid: int, state: _State) -> list[str]:
    """The necessary statements, in order; none if capture is correct."""
    buffer, needed = buffer_name(relid), []
    if state.buffer is None:
        needed += create_buffer(relid, state.columns)
    else:
        for column in state.columns:
            typid = state.buffer.get(f"c{column.attnum}")
            if typid is not None and typid != column.typid:
                # Old images are of no use: a changed type means FULL for every reader.
                needed.append(f"ALTER TABLE {buffer} DROP COLUMN c{column.attnum}")
            if typid != column.typid:
                needed.append(f"ALTER TABLE {buffer} ADD COLUMN {column.definition}")
    source = function_source(relid, state.columns)
    if state.source != source:
        needed += create_function(relid, source, state.columns)
    for t in state.triggers:
        needed += create_trigger(
            relid, str(t["table"]), str(t["name"]), str(t["event"]), str(t["state"]), exists=bool(t["exists"])
        )
    needed += state.strays
    if not needed and not state.recorded:
        needed.append("SELECT 1")
    return needed


def _install(conn: Connection, relid: int, attnums: Collection[int]) -> None:
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
        state = _read(conn, relid, attnums)
        # All partitions and children, until commit: when the new function exists, no transaction has fired the old one.
        conn.execute(f"LOCK TABLE {state.table} IN SHARE ROW EXCLUSIVE MODE")
        for _ in range(2):  # the triggers of partitions, which the first pass creates with that of the whole
            state = _read(conn, relid, attnums)
            for text in _statements(relid, state):
                conn.execute(text)
        captured = [c.attnum for c in state.columns]
        record = {"relid": relid, "attnums": captured, "fingerprint": None}
        conn.execute(statement("record_source"), record)
        record["fingerprint"] = fingerprints(conn, [relid]).get(relid)
        conn.execute(statement("record_source"), record)
        conn.execute("SELECT pgtrickle._wake('capture')")


def _remove(conn: Connection, relid: int, *, only_if_unused: bool = False) -> None:
    with conn.transaction():
        conn.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'")
        conn.execute("SET LOCAL client_min_messages = warning")
        if only_if_unused and relid not in {row[0] for row in conn.execute(statement("garbage")).fetchall()}:
            return
        conn.execute(f"DROP FUNCTION IF EXISTS {capture_function_name(relid)}() CASCADE")
        conn.execute(f"DROP TABLE IF EXISTS {buffer_name(relid)}")
        for name in ("moves_forget", "source_forget"):
            conn.execute(statement(name), {"relid": relid})
        conn.execute("SELECT pgtrickle._wake('capture')")
