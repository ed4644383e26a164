"""`pgtrickle verify`: is a stream table equal to its query, as PostgreSQL evaluates it at the table's own cut?

Everything is read in one REPEATABLE READ transaction. When no change is pending there, the query is evaluated as its
author typed it, which refreshes do not use (maintain/oracle.py). Otherwise the sources are read as of the table's
cut (`around`), in the text that refreshes use; this text is compared with the author's over the rows of now. Where the
sources cannot be read as of the cut, a refresh is requested and awaited (`waited`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pgtrickle.db import catalog
from pgtrickle.db.connect import TRANSACTION, Connection, begin, connect, translated
from pgtrickle.db.names import hold_names, hold_storage
from pgtrickle.db.session import applied
from pgtrickle.db.statements import statement
from pgtrickle.define import author_query as author
from pgtrickle.define.compile import compile_table, parse_table
from pgtrickle.define.operators import as_meant, meant
from pgtrickle.define.prepare import is_judged
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import has_renamed
from pgtrickle.errors import ConfigError, DefinitionError, PgtrickleError, TransientError
from pgtrickle.maintain.compare import Differences, Evaluator, column_list, compare, compare_numbers
from pgtrickle.maintain.oracle import (
    AS_KEPT,
    AS_OF,
    AS_OF_TYPED,
    AS_TYPED,
    AT_CUTS,
    TEXT_DIFFERS,
    TIES_DECIDED,
    TypedQuery,
    as_typed,
)
from pgtrickle.mirror.verify import compare_mirror, copy_at_cuts
from pgtrickle.model.catalog import StreamTable
from pgtrickle.model.flow import Cut, Window
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.model.session import apart
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.differentiate.linear import ChangedSource
from pgtrickle.pipeline.plan.nodes import Plan
from pgtrickle.pipeline.render.whole import query_as_of
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.refresh.decide import since
from pgtrickle.refresh.failures import moved_away
from pgtrickle.refresh.pending import read_pending

_UNSERVED_SECONDS = 10.0  # a missing scheduler may be restarting


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
            sessions = _Sessions(conn, dsn, origins)
            if names is not None:
                return [_verify(sessions, table, timeout_seconds) for table in tables]
            return [_verified(sessions, table, timeout_seconds) for table in tables]
    finally:
        origins.close()


def _verified(sessions: _Sessions, table: StreamTable, timeout_seconds: float) -> VerifyResult:
    """One of all: a broken one does not keep the others from being compared."""
    try:
        with translated():
            return _verify(sessions, table, timeout_seconds)
    except PgtrickleError as error:
        if sessions.conn.closed or sessions.conn.broken:
            raise
        mode = table.effective_mode
        return VerifyResult(table.full_name, False, 0, 0, "", 0.0, mode, "failed", error=error.one_line())


@dataclass(frozen=True, slots=True)
class _Sessions:
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


def _verify(sessions: _Sessions, table: StreamTable, timeout_seconds: float) -> VerifyResult:
    pgt_id = table.pgt_id
    begun = time.monotonic()
    is_requested = False
    conn = sessions.conn
    while True:
        result = _attempt(sessions, pgt_id, begun if is_requested else None)
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
        if not is_requested:
            conn.execute(statement("request_refresh"), {"id": pgt_id})
            conn.execute("NOTIFY pgtrickle_wake")
            is_requested = True
        time.sleep(0.1)


def _is_served(conn: Connection) -> bool:
    ((served,),) = conn.execute("SELECT pgtrickle._is_served()").fetchall()
    return bool(served)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A table as one snapshot shows it, and the query that it is compared with.

    `typed`: the author's text over the rows of now, `text_now`: the text of refreshes over them.
    """

    table: StreamTable
    cut: Cut
    query: str
    how: str
    against: str
    settings: Mapping[str, tuple[str, str]]
    changed: Mapping[int, ChangedSource]
    typed: TypedQuery | None = None
    text_now: str | None = None


def _attempt(sessions: _Sessions, pgt_id: int, waiting_since: float | None) -> VerifyResult | None:
    """One comparison in one snapshot; None if the table cannot be compared at its cut now."""
    conn = sessions.conn
    with _snapshot(conn):
        moment = catalog.read_moment(conn)
        table = _comparable_table(conn, pgt_id)
        if table.mirror is not None:
            return _mirror(sessions, table)
        if not hold_storage(conn, pgt_id):
            raise moved_away(table)
        if hold_names(conn, [pgt_id]).lost:
            return None
        planned = _planned(conn, table, moment)
        if planned is not None and table.remotes:
            planned = _over_copies(sessions, table, planned)
        if planned is None:
            return None
        waited = 0.0 if waiting_since is None else round(time.monotonic() - waiting_since, 3)
        against, found = _compared(conn, planned)
    how = planned.how if waiting_since is None else "waited"
    return VerifyResult(
        table.full_name,
        found.is_equal,
        found.missing,
        found.extra,
        str(planned.cut),
        waited,
        planned.table.effective_mode,
        how,
        found.note,
        against,
        found.samples,
    )


def _compared(conn: Connection, planned: _Comparison) -> tuple[str, Differences]:
    """With what, and the differences."""
    table, typed, against = planned.table, planned.typed, planned.against
    stored = f"SELECT {column_list(table)} FROM {qualified(table.schema, table.name)}"
    if against == AS_TYPED:
        assert typed is not None
        evaluator = Evaluator(conn, table, {}, planned.settings, path=typed.path)
        return against, compare(evaluator, table.columns, typed.query, stored)
    if typed is not None and planned.text_now is not None:
        # The table may have been computed by the same text: so the text has to be right, too.
        ours = Evaluator(conn, table, {}, planned.settings)
        if typed.path is None:
            found = compare(ours, table.columns, typed.query, planned.text_now)
        else:  # each needs a search_path of its own
            theirs = Evaluator(conn, table, {}, planned.settings, path=typed.path)
            found = compare_numbers((theirs, typed.query), (ours, planned.text_now))
        if not found.is_equal:
            return TEXT_DIFFERS, found
        against = AS_OF_TYPED
    if planned.changed:
        # Tables read as of a cut have no statistics; estimated as tiny, they would be joined by nested loops.
        conn.execute("SET LOCAL enable_nestloop = off")
    evaluator = Evaluator(conn, table, planned.changed, planned.settings)
    return against, compare(evaluator, table.columns, planned.query, stored)


def _over_copies(sessions: _Sessions, table: StreamTable, planned: _Comparison) -> _Comparison | None:
    """With copies of the tables of other databases, which it reads without storing them; None: refresh it first."""
    copied = copy_at_cuts(sessions.conn, table, sessions.dsn, sessions.origins)
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
        typed = _as_typed(conn, table) if decided is None else None
    if not any(p.rows or p.truncated for p in pending.values()):
        if typed is not None:
            return _Comparison(table, cut, typed.query, "quiet", AS_TYPED, settings, {}, typed)
        query, against = (table.query, AS_KEPT) if decided is None else (query_as_of(decided, {}), TIES_DECIDED)
        return _Comparison(table, cut, query, "quiet", against, settings, {})
    if any(p.truncated for p in pending.values()):
        return None
    plan = _differentiable_plan(conn, table, decided)
    if plan is None:
        return None
    rows = {relid: p.rows for (relid, _, _), p in pending.items() if p.rows}
    changed = {relid: ChangedSource(relid, window, n, table.runs_as_author) for relid, n in rows.items()}
    then, now = query_as_of(plan, changed), query_as_of(plan, {})
    return _Comparison(table, cut, then, "around", AS_OF, settings, changed, typed, now)


def _settings(table: StreamTable, moment: catalog.ReadPoint) -> dict[str, tuple[str, str]]:
    """All settings of the author: values are not converted to text here."""
    settings = {name: value for name, value in table.session_settings.items() if name != "search_path"}
    return apart(settings, moment.session)


def _mirror(sessions: _Sessions, table: StreamTable) -> VerifyResult | None:
    assert table.mirror is not None
    differences = compare_mirror(sessions.conn, table, sessions.dsn, sessions.origins)
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


def _differentiable_plan(conn: Connection, table: StreamTable, decided: Plan | None) -> Plan | None:
    if table.effective_mode == "FULL":
        return None
    try:
        return decided or parse_table(conn, table)
    except NotDifferentiableError:
        return None


def _as_typed(conn: Connection, table: StreamTable) -> TypedQuery | None:
    """The text itself if the author's session parses it."""
    if not table.runs_as_author:
        return as_typed(conn, table)
    row = conn.execute(statement("original"), {"id": table.pgt_id}).fetchone()
    reads_copies = bool(author.with_copies(conn, table, table.query)[1])
    path = table.session_settings.get("search_path")
    if row is None or reads_copies or path is None:
        return None
    return TypedQuery(f"{row[0].rstrip().rstrip(';')}\n", path)  # it may end with a comment
