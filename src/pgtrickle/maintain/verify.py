"""`pgtrickle verify`: is a stream table equal to its query, as PostgreSQL evaluates it at the table's own cut?

Everything is read in one REPEATABLE READ transaction. When no change is pending there, the query is evaluated as its
author typed it, which refreshes do not use (maintain/oracle.py). Otherwise the sources are read as of the table's
cut (`around`), in the text that refreshes use and whose operators are the author's; where that cannot be expressed, a
refresh is requested and awaited (`waited`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import TRANSACTION, Connection, begin, connect, translated
from pgtrickle.db.handover import hand_over
from pgtrickle.db.names import hold_names, hold_storage
from pgtrickle.db.session import applied
from pgtrickle.db.statements import statement
from pgtrickle.define import author_query as author
from pgtrickle.define.compile import compile_table, parse_table
from pgtrickle.define.operators import as_meant, meant
from pgtrickle.define.prepare import is_judged
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import has_renamed
from pgtrickle.errors import ConfigError, DefinitionError, PgtrickleError, SourceChangedError, TransientError
from pgtrickle.maintain.oracle import AS_KEPT, AS_OF, AS_TYPED, AT_CUTS, TIES_DECIDED, as_typed
from pgtrickle.mirror.verify import compare_mirror, copy_at_cuts
from pgtrickle.model.catalog import Column, StreamTable
from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.identifiers import qualified, quote_ident
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.model.session import apart
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.codec import (
    BOOL,
    BPCHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INTEGERS,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TIMESTAMPTZ,
    VARCHAR,
    exact,
)
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Plan
from pgtrickle.pipeline.render.whole import query_as_of
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.refresh.decide import since
from pgtrickle.refresh.failures import moved_away
from pgtrickle.refresh.pending import read_pending

# json, xml and the geometric types have no equality to sort or hash by; their text has
_NO_EQUALITY = frozenset({114, 142, 600, 601, 602, 603, 604, 628, 718})

SAMPLES = 5  # rows of each kind that are shown
_AS_TEXT = "some types compared as text"
_UNSERVED_SECONDS = 10.0  # a missing scheduler may be restarting

_PLAIN = INTEGERS | {BOOL, NUMERIC, FLOAT4, FLOAT8, TEXT, VARCHAR, BPCHAR, DATE, TIMESTAMP, TIMESTAMPTZ}


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """`missing`: rows of the query that the table lacks; `extra`: rows of the table that the query lacks.

    `how`: quiet (no changes pending), around (sources read as of the table's cut), waited (a refresh was awaited
    first).
    """

    name: str
    ok: bool
    missing: int
    extra: int
    cut: str
    waited: float
    mode: str
    how: str
    note: str | None = None
    against: str = ""  # what the table was compared with
    samples: tuple[str, ...] = ()  # some rows that differ, as PostgreSQL writes rows
    error: str | None = None  # why it could not be compared


def verify_tables(
    dsn: str, names: Sequence[str] | None, *, timeout_seconds: float = 60.0, servers: Sequence[str] = ()
) -> list[VerifyResult]:
    """These tables, or all, and the mirrors that they read; `servers`: other servers of the fleet."""
    origins = OriginSessions(servers)
    try:
        with connect(dsn, role="verify", pooler=TRANSACTION) as conn, translated():
            tables = [t for t in catalog.load_stream_tables(conn) if t.mirror is None or t.mirror.is_stored]
            if names is not None:
                named = [_named(tables, name) for name in names]
                tables = [*_mirrors_below(named, tables), *named]
            look = _Look(conn, dsn, origins)
            if names is not None:
                return [_verify(look, table, timeout_seconds) for table in tables]
            return [_verified(look, table, timeout_seconds) for table in tables]
    finally:
        origins.close()


def _verified(look: _Look, table: StreamTable, timeout_seconds: float) -> VerifyResult:
    """One of all: a broken one does not keep the others from being compared."""
    try:
        with translated():
            return _verify(look, table, timeout_seconds)
    except PgtrickleError as error:
        if look.conn.closed or look.conn.broken:
            raise
        mode = table.effective_mode
        return VerifyResult(table.full_name, False, 0, 0, "", 0.0, mode, "failed", error=error.one_line())


@dataclass(frozen=True, slots=True)
class _Look:
    conn: Connection
    dsn: str
    origins: OriginSessions


def _mirrors_below(tables: Sequence[StreamTable], all_of_them: Sequence[StreamTable]) -> list[StreamTable]:
    by_relid = {table.relid: table for table in all_of_them}
    mirrors: dict[int, StreamTable] = {}
    stack = list(tables)
    while stack:
        for source in stack.pop().sources:
            below = by_relid.get(source.relid)
            if below is not None and below.pgt_id not in mirrors:
                mirrors[below.pgt_id] = below
                stack.append(below)
    return [table for table in mirrors.values() if table.mirror is not None]


def _named(tables: Sequence[StreamTable], name: str) -> StreamTable:
    names = [name] if "." in name else [name, f"public.{name}"]
    for table in tables:
        if table.full_name in names or table.name in names:
            return table
    raise DefinitionError(f"there is no stream table {name}", hint="pgtrickle status lists them")


def _verify(look: _Look, table: StreamTable, timeout_seconds: float) -> VerifyResult:
    pgt_id = table.pgt_id
    begun = time.monotonic()
    asked = False
    conn = look.conn
    while True:
        result = _attempt(look, pgt_id, begun if asked else None)
        if result is not None:
            return result
        waited = time.monotonic() - begun
        if waited > min(timeout_seconds, _UNSERVED_SECONDS) and (waited > timeout_seconds or not _is_served(conn)):
            raise TransientError(
                f"{table.full_name} must be refreshed before verification, and was not within {waited:.0f} s",
                hint="start pgtrickle run, or run pgtrickle refresh"
                if not _is_served(conn)
                else "see pgtrickle status",
            )
        if not asked:
            conn.execute(
                "UPDATE pgtrickle.pgt_stream_tables SET refresh_requested_at = clock_timestamp() WHERE pgt_id = %s",
                (pgt_id,),
            )
            conn.execute("NOTIFY pgtrickle_wake")
            asked = True
        time.sleep(0.1)


def _is_served(conn: Connection) -> bool:
    ((served,),) = conn.execute("SELECT pgtrickle._is_served()").fetchall()
    return bool(served)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A table as one snapshot shows it, and the query that it is compared with."""

    table: StreamTable
    cut: Cut
    query: str
    how: str
    against: str
    settings: Mapping[str, tuple[str, str]]
    changed: Mapping[int, ChangedSource]


def _attempt(look: _Look, pgt_id: int, waiting_since: float | None) -> VerifyResult | None:
    """One comparison in one snapshot; None if the table cannot be compared at its cut now."""
    conn = look.conn
    with _snapshot(conn):
        moment = catalog.read_moment(conn)
        table = _comparable_table(conn, pgt_id)
        if table.mirror is not None:
            return _mirror(look, table)
        if not hold_storage(conn, pgt_id):
            raise moved_away(table)
        if hold_names(conn, [pgt_id]).lost:
            return None
        planned = _planned(conn, table, moment)
        if planned is not None and table.remotes:
            planned = _over_copies(look, table, planned)
        if planned is None:
            return None
        if planned.against == AS_OF:
            # Tables read as of a cut have no statistics; estimated as tiny, they would be joined by nested loops.
            conn.execute("SET LOCAL enable_nestloop = off")
        how, waited = planned.how, 0.0
        if waiting_since is not None:
            how, waited = "waited", round(time.monotonic() - waiting_since, 3)
        is_typed = planned.against == AS_TYPED
        evaluator = _Evaluator(conn, planned.table, planned.changed, planned.settings, as_typed=is_typed)
        missing, extra, note = _compare(evaluator, planned.table, planned.query)
        ok, mode = not missing and not extra, planned.table.effective_mode
        samples = () if ok else _samples(evaluator, planned.table, planned.query, as_text=note == _AS_TEXT)
    cut, against = str(planned.cut), planned.against
    return VerifyResult(table.full_name, ok, missing, extra, cut, waited, mode, how, note, against, samples)


def _over_copies(look: _Look, table: StreamTable, planned: _Comparison) -> _Comparison | None:
    """With copies of the tables of other databases, which it reads without storing them; None: refresh it first."""
    copied = copy_at_cuts(look.conn, table, look.dsn, look.origins)
    if copied is None:
        return None
    return replace(planned, query=copied(planned.query), how="around", against=AT_CUTS)


def _comparable_table(conn: Connection, pgt_id: int) -> StreamTable:
    """Raises when it will not be refreshed."""
    loaded = catalog.load_stream_tables(conn, [pgt_id])
    if not loaded:
        raise DefinitionError("the stream table was dropped meanwhile")
    table = loaded[0]
    if table.lost_privilege is not None:
        raise lost_privilege(table)
    if table.status in ("ERROR", "SUSPENDED"):
        raise ConfigError(
            f"{table.full_name} is in status {table.status}",
            hint="see last_error_message in pgtrickle.pgt_status()",
        )
    return table


def _planned(conn: Connection, table: StreamTable, moment: catalog.ReadPoint) -> _Comparison | None:
    """None: it has to be refreshed first."""
    cut = since(table, moment.instance, moment.cut)
    # One with a renamed source follows it by a refresh, too; and a refresh judges code that has changed.
    is_usable = table.is_populated and not table.needs_reinit and is_judged(table)
    if cut is None or not is_usable or has_renamed(conn, table):
        return None
    window = Window(cut, moment.cut)
    pending, _ = read_pending(conn, [(s.relid, window, None) for s in table.captured])
    table = as_meant(table, meant(conn, table))
    settings, decided = _settings(table, moment), _decided(conn, table)
    with applied(conn, settings):
        query = _as_typed(conn, table) if decided is None else None
    if not any(p.rows or p.truncated for p in pending.values()):
        against = AS_TYPED
        if query is None:
            query, against = (table.query, AS_KEPT) if decided is None else (query_as_of(decided, {}), TIES_DECIDED)
        return _Comparison(table, cut, query, "quiet", against, settings, {})
    if any(p.truncated for p in pending.values()):
        return None
    rows = {relid: p.rows for (relid, _, _), p in pending.items() if p.rows}
    changed = {relid: ChangedSource(relid, window, n, table.runs_as_author) for relid, n in rows.items()}
    around = _around(conn, table, decided, changed)
    return None if around is None else _Comparison(table, cut, around, "around", AS_OF, settings, changed)


def _settings(table: StreamTable, moment: catalog.ReadPoint) -> dict[str, tuple[str, str]]:
    """All settings of the author: values are not converted to text here."""
    settings = {name: value for name, value in table.session_settings.items() if name != "search_path"}
    return apart(settings, moment.session)


def _mirror(look: _Look, table: StreamTable) -> VerifyResult | None:
    assert table.mirror is not None
    differences = compare_mirror(look.conn, table, look.dsn, look.origins)
    if differences is None:
        return None
    missing, extra, cut = differences
    ok = not missing and not extra
    against = table.mirror.name
    mode = table.effective_mode
    return VerifyResult(table.full_name, ok, missing, extra, str(cut), 0.0, mode, "around", None, against)


@contextmanager
def _snapshot(conn: Connection) -> Iterator[None]:
    # Not READ ONLY, because of temporary views; it is rolled back.
    begin(conn, "ISOLATION LEVEL REPEATABLE READ READ WRITE")
    try:
        yield
    finally:
        if not conn.closed:
            conn.rollback()


def _decided(conn: Connection, table: StreamTable) -> Plan | None:
    """The query with a total order, if its LIMIT has ties and the table is maintained as top-k."""
    if table.effective_mode == "FULL" or "LIMIT" not in table.query:
        return None
    try:
        template = compile_table(conn, table).template
    except NotDifferentiableError:
        return None
    if not isinstance(template, TopKTemplate) or template.core.undetermined is None:
        return None
    return template.with_ties_decided()


def _around(
    conn: Connection, table: StreamTable, decided: Plan | None, changed: Mapping[int, ChangedSource]
) -> str | None:
    if table.effective_mode == "FULL":
        return None
    try:
        plan = decided or parse_table(conn, table)
    except NotDifferentiableError:
        return None
    return query_as_of(plan, changed)


def _as_typed(conn: Connection, table: StreamTable) -> str | None:
    """The text itself if the author's session evaluates it."""
    if not table.runs_as_author:
        return as_typed(conn, table)
    row = conn.execute(statement("original"), {"id": table.pgt_id}).fetchone()
    reads_copies = bool(author.with_copies(conn, table, table.query)[1])
    if row is None or reads_copies or "search_path" not in table.session_settings:
        return None
    return f"{row[0].rstrip().rstrip(';')}\n"  # it may end with a comment


class _Evaluator:
    """Evaluates as the same role as a refresh: the service role or the author. `as_typed`: with the author's
    search_path."""

    def __init__(
        self,
        conn: Connection,
        table: StreamTable,
        changed: Mapping[int, ChangedSource],
        settings: Mapping[str, tuple[str, str]],
        *,
        as_typed: bool,
    ) -> None:
        self._conn = conn
        self._table = table
        self._settings = settings
        self._path = table.session_settings["search_path"] if as_typed and table.runs_as_author else None
        self._place = hand_over(conn) if table.runs_as_author else None
        self._windows = author.window_copies(conn, table, changed)[1] if table.runs_as_author else []

    def two_numbers(self, text: str) -> tuple[int, int]:
        ((one, other),) = self._rows(text, ("int8", "int8"))
        return int(one), int(other)

    def texts(self, text: str) -> list[str]:
        return [str(row[0]) for row in self._rows(text, ("text",))]

    def _rows(self, text: str, types: Sequence[str]) -> Sequence[Sequence[Any]]:
        if self._place is None:
            with translated(), self._conn.transaction(), applied(self._conn, self._settings):
                return self._conn.execute(text).fetchall()
        text, copies = author.with_copies(self._conn, self._table, text)
        with translated(), author.session(self._place, self._table, [*copies, *self._windows]) as session:
            return list(session.rows(text, types, path=self._path))


def _compare(evaluator: _Evaluator, table: StreamTable, query: str) -> tuple[int, int, str | None]:
    try:
        missing, extra = _differences(evaluator, table, query, rounded=False)
    except SourceChangedError:  # a type, or one inside an array or composite, has no equality
        return (*_differences(evaluator, table, query, rounded=False, as_text=True), _AS_TEXT)
    if not (missing or extra) or not any(c.typid in (FLOAT4, FLOAT8) for c in table.columns):
        return missing, extra, None
    # A float sum depends on the order of its rows, which PostgreSQL does not promise even to itself.
    rounded = _differences(evaluator, table, query, rounded=True)
    return (*rounded, "floats compared to 12 digits") if not any(rounded) else (missing, extra, None)


def _differences(
    evaluator: _Evaluator, table: StreamTable, query: str, *, rounded: bool, as_text: bool = False
) -> tuple[int, int]:
    return evaluator.two_numbers(
        _both_sides(table, query, rounded=rounded, as_text=as_text)
        + "SELECT (SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE have) AS m), "
        "(SELECT count(*) FROM (TABLE have EXCEPT ALL TABLE wanted) AS e)"
    )


def _samples(evaluator: _Evaluator, table: StreamTable, query: str, *, as_text: bool) -> tuple[str, ...]:
    """Some of the rows that differ. Whoever verifies may read the table: PostgreSQL has just checked that."""
    rows = evaluator.texts(
        _both_sides(table, query, rounded=False, as_text=as_text)
        + f"(SELECT 'missing ' || m::text FROM (TABLE wanted EXCEPT ALL TABLE have) AS m LIMIT {SAMPLES}) UNION ALL "
        f"(SELECT 'extra ' || e::text FROM (TABLE have EXCEPT ALL TABLE wanted) AS e LIMIT {SAMPLES})"
    )
    return tuple(rows)


def _both_sides(table: StreamTable, query: str, *, rounded: bool, as_text: bool) -> str:
    names = ", ".join(f"c{i}" for i in range(len(table.columns)))
    shown = ", ".join(_comparable(f"q.c{i}", c, rounded=rounded, as_text=as_text) for i, c in enumerate(table.columns))
    stored = ", ".join(quote_ident(c.name) for c in table.columns)
    wanted = f"SELECT {shown} FROM ({query}) AS q({names})"
    have = f"SELECT {shown} FROM (SELECT {stored} FROM {qualified(table.schema, table.name)}) AS q({names})"
    return f"WITH wanted AS MATERIALIZED ({wanted}), have AS MATERIALIZED ({have}) "


def _comparable(sql: str, column: Column, *, rounded: bool, as_text: bool) -> str:
    if column.typid in _NO_EQUALITY or (as_text and column.typid not in _PLAIN):
        return exact(sql, column.base)
    if rounded and column.typid in (FLOAT4, FLOAT8):
        special = f"{sql}::float8 IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN {special} THEN {sql}::text ELSE to_char({sql}::float8, '9.99999999999EEEE') END"
    return sql
