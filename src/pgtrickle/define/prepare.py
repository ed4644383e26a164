"""Prepares a stream table for refreshes: compiles it, captures its sources and creates its state table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from pgtrickle.apply.groups import create_state
from pgtrickle.capture.fingerprint import fingerprints, fingerprints_for_others
from pgtrickle.capture.install import ensure_capture
from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.define.author_query import looked_at
from pgtrickle.define.compile import Compiled, compile_table
from pgtrickle.define.operators import meant
from pgtrickle.define.prove import prove_delta_statements
from pgtrickle.define.renames import (
    ANEW,
    follow_origin,
    follow_renames,
    has_renamed,
    is_renamed_there,
    require_types,
)
from pgtrickle.define.restored import adopt_if_restored
from pgtrickle.define.template_key import TemplateKey, template_key
from pgtrickle.define.widen import NO_MODIFIER, ColumnsWidenedError, WiderColumn, is_wider, widen_columns
from pgtrickle.errors import (
    DefinitionError,
    InvariantError,
    OriginReplacedError,
    SourceChangedError,
    TransientError,
)
from pgtrickle.model.catalog import Mirror, Relation, StreamTable, as_at_origin
from pgtrickle.model.identifiers import qualified, quote_literal
from pgtrickle.model.reasons import Reason, ReasonCode, named
from pgtrickle.model.texts import same_text
from pgtrickle.pipeline.templates.explain import plan_words
from pgtrickle.pipeline.text.tokens import without_names

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class MirrorReader:
    """The reading database of mirrors, as reported to their origins."""

    key: str
    server: str
    database: str


class StoredTemplates(Protocol):
    """Compiled templates that processes and databases share."""

    def is_usable(self) -> bool: ...

    def get_stored(self, key: TemplateKey) -> Compiled | None: ...

    def put_stored(self, key: TemplateKey, compiled: Compiled) -> Compiled | None:
        """As others will get it; None: it cannot be stored."""


UNDEFINED_COLUMN = "42703"
CAPTURE_TRIES = 3
CAPTURE_SECONDS = 0.3  # for a lock on a source; without the lock it is retried, and other tables do not wait


def prepare(
    conn: Connection,
    table: StreamTable,
    *,
    reload: Reason | None = None,
    cycle: frozenset[int] = frozenset(),
    store: StoredTemplates | None = None,
    is_widened: bool = False,
) -> tuple[StreamTable, Compiled]:
    """Idempotent. `cycle`: the relations of its cycle, if it is in one. Also returns the table, whose query has the
    current names of its sources. `is_widened`: its columns have just become wider.

    A changed shape (definition, types, state) marks the content for a new load and recreates the state; `reload` is
    another reason for that.
    """
    table = adopt_if_restored(conn, table)
    dropped = _dropped_columns(conn, table)
    if dropped is not None:
        reload = reload or Reason.of(ReasonCode.SOURCE_CHANGED)
    followed = follow_renames(conn, table)
    try:
        with translated():
            is_same = followed is not table or is_widened
            compiled = _ready(conn, followed, reload, cycle, store, is_renamed=is_same)
            if dropped is not None:
                conn.execute(statement("dropped_columns_removed"), {"id": table.pgt_id})
            return followed, compiled
    except ColumnsWidenedError as error:
        wider = widen_columns(conn, followed, error)
        return prepare(conn, wider, reload=reload, cycle=cycle, store=store, is_widened=True)
    except DefinitionError as error:
        # A rename in between: the names may refer to no relation, or to another one.
        if has_renamed(conn, followed):
            raise TransientError("a source was renamed while the query was analysed") from error
        if dropped is not None and error.sqlstate == UNDEFINED_COLUMN:
            raise dropped from error
        raise


def _dropped_columns(conn: Connection, table: StreamTable) -> SourceChangedError | None:
    """Raises an error if a source or a captured column was dropped. Returns it if other columns were dropped, and only
    PostgreSQL can tell whether the query needs them."""
    with translated():
        rows = conn.execute(statement("sources_dropped"), {"id": table.pgt_id}).fetchall()
    repair = f"SELECT pgtrickle.repair_stream_table({quote_literal(qualified(table.schema, table.name))})"
    created = f"create it again, then {repair}; or give it another query"
    needed: SourceChangedError | None = None
    for name, exists, is_created_again, columns in rows:
        if exists:
            needed = SourceChangedError(f"column {', '.join(columns)} of {name} was dropped", hint=created)
            if table.effective_mode != "FULL":
                raise needed
        elif is_created_again:
            raise SourceChangedError(f"{name} was dropped and created again", hint=f"to read the new one: {repair}")
        else:
            raise SourceChangedError(f"{name} was dropped", hint=created)
    return needed


def _ready(
    conn: Connection,
    table: StreamTable,
    reload: Reason | None,
    cycle: frozenset[int],
    store: StoredTemplates | None,
    *,
    is_renamed: bool,
) -> Compiled:
    judge(conn, table, reload)
    # Fingerprints of views before compiling, names after: a change in between does not match the fingerprint.
    current: dict[int, str | None] = dict.fromkeys(s.relid for s in table.watched if not s.capturable)
    current |= fingerprints(conn, current)
    compiled = compile_table(conn, table, cycle) if cycle else _compiled(conn, table, store)
    for source in table.captured:
        columns = source.captured_columns if compiled.template is not None else frozenset()
        current[source.relid] = capture_source(conn, source.relid, columns)
    compiled = _settled(conn, conn, table, compiled, reload, is_renamed=is_renamed)
    _expect(conn, table, current, reload)
    return compiled


def _compiled(conn: Connection, table: StreamTable, store: StoredTemplates | None) -> Compiled:
    """From the store, or compiled now and put there."""
    key = template_key(conn, table) if store is not None and store.is_usable() else None
    if store is None or key is None:
        return compile_table(conn, table)
    stored = store.get_stored(key)
    if stored is not None:
        return stored
    compiled = compile_table(conn, table, portable=True)
    # What it was compiled from may have changed meanwhile: then it is not what the key stands for.
    if compiled.knows_sources and template_key(conn, table) == key:
        stored = store.put_stored(key, compiled)
    return stored or compile_table(conn, table)


def prepare_mirror(
    origin: Connection,
    home: Connection,
    table: StreamTable,
    reader: MirrorReader,
    *,
    reload: Reason | None = None,
    store: StoredTemplates | None = None,
) -> tuple[StreamTable, Compiled]:
    """The same for a mirror: its source is captured at its origin, where it is registered as a reader.

    It is registered first, so that the buffer is neither dropped nor trimmed while the mirror is loaded.
    """
    mirror = table.mirror
    if mirror is None:
        raise InvariantError(f"{table.full_name} is not a mirror")
    try:
        with translated():
            there = same_types(origin, table, mirror)
    except ColumnsWidenedError as error:
        table = widen_columns(home, table, error)
        return prepare_mirror(origin, home, table, reader, reload=reload, store=store)
    with translated():
        table = follow_origin(home, table, there)
    try:
        with translated():
            return table, _mirror_ready(origin, home, table, reader, reload, store)
    except DefinitionError as error:
        if is_renamed_there(origin, table):
            raise TransientError("a table of the origin was renamed while it was analysed") from error
        raise


def _mirror_ready(
    origin: Connection,
    home: Connection,
    table: StreamTable,
    reader: MirrorReader,
    reload: Reason | None,
    store: StoredTemplates | None,
) -> Compiled:
    mirror = table.mirror
    assert mirror is not None
    there = as_at_origin(table)
    register_reader(origin, reader, table.pgt_id, mirror)
    judge(origin, there, reload)
    found = capture_source(origin, mirror.relid, frozenset(mirror.columns), fingerprints_for_others)
    compiled = _by_key(home, _compiled(origin, there, store))
    compiled = _settled(origin, home, there, compiled, reload)
    with home.transaction():
        if _is_to_be_loaded(home, table, reload):
            home.execute(statement("mirror_fingerprints"), {"ids": [table.pgt_id], "fingerprints": [found]})
    return compiled


def register_reader(origin: Connection, reader: MirrorReader, mirror_id: int, mirror: Mirror) -> None:
    """At the origin: from now on it keeps changes for this mirror, or for the stream table that it stands for."""
    origin.execute(
        statement("reader_register"),
        {
            "reader_key": reader.key,
            "mirror_id": mirror_id,
            "server": reader.server,
            "database": reader.database,
            "relid": mirror.relid,
            "columns": sorted(mirror.columns),
            "reads_replica": not mirror.is_stored,
        },
    )


def _by_key(home: Connection, compiled: Compiled) -> Compiled:
    row = home.execute(statement("mirror_key"), {"table": compiled.target.table}).fetchone()
    key = tuple(row[0]) if row is not None and row[0] else ()
    return replace(compiled, target=replace(compiled.target, key=key))


def same_types(origin: Connection, table: StreamTable, mirror: Mirror) -> Relation:
    """The table at its origin. Raises an error if it does not exist, or if the type of a column has changed: the type
    of the mirror might accept its values, but with another meaning. If another table has its name, the error is an
    OriginReplacedError."""
    relations = catalog.relations(origin, [mirror.relid])
    if not relations:
        name = (mirror.schema, mirror.table)
        row = origin.execute("SELECT to_regclass(format('%%I.%%I', %s::text, %s::text)) IS NOT NULL", name).fetchone()
        if row is not None and row[0]:
            message = f"{mirror.name} was dropped and created again"
            raise OriginReplacedError(message, hint="it is loaded anew", key=mirror.key, relid=mirror.relid)
        raise SourceChangedError(f"{mirror.name} does not exist any more", hint=f"create it again, or {ANEW}")
    columns = {c.attnum: c for c in relations[0].columns}
    wider: list[WiderColumn] = []
    message = ""
    for position, (attnum, column) in enumerate(zip(mirror.columns, table.columns, strict=True)):
        its = columns.get(attnum)
        if its is None or same_text(its.type, column.type):
            continue
        message = f"column {its.name} of {mirror.name} is of type {its.type} now, and was {column.type}"
        if its.typid != column.typid or not is_wider(its.typid, column.typmod, its.typmod):
            raise SourceChangedError(message, hint=ANEW)
        wider.append(WiderColumn(position, column.name, its.type, its.typmod))
    if wider:
        raise ColumnsWidenedError(message, wider, hint=ANEW)
    return relations[0]


def _settled(
    there: Connection,
    home: Connection,
    table: StreamTable,
    compiled: Compiled,
    reload: Reason | None,
    *,
    is_renamed: bool = False,
) -> Compiled:
    """If its shape has changed: statements are checked in the database of its sources, and the shape is recorded in the
    database of the table. The content stays if only names have changed, or types became wider (`is_renamed`).

    After a restart of the control plane nothing has to be checked again: changed sources are detected by their
    fingerprints, changed keys, constraints, modifiers and code by the catalog.
    """
    plan = table.plan or {}
    stored, has_same_keys = plan.get("shape"), plan.get("keys") == table.keys
    if reload is not None or stored != _shape(table, compiled) or not has_same_keys:
        compiled = prove_delta_statements(there, table, compiled)
        # The result of a query in mode FULL may contain names: rows as values, tableoid.
        is_renamed = _same_meaning(there, table, compiled) is None and is_renamed
    if stored != _shape(table, compiled):
        _record(home, table, compiled, is_renamed=is_renamed)
    elif not is_judged(table) or not has_same_keys:
        keys = json.dumps({"code": table.code, "keys": table.keys})
        home.execute(statement("plan_merge"), {"id": table.pgt_id, "keys": keys})
    return compiled


def is_judged(table: StreamTable) -> bool:
    """Whether the code that its query can call is unchanged since it was found to be trusted."""
    return table.plan is not None and table.plan.get("code") == table.code


def _has_same_views(conn: Connection, table: StreamTable) -> bool:
    """Whether the views that it reads are unchanged since its content was computed: a replaced view may call other
    code, which `is_judged` does not check."""
    views = [s.relid for s in table.watched if not s.capturable]
    return fingerprints(conn, views) == {relid: table.fingerprints.get(relid) for relid in views}


def judge(conn: Connection, table: StreamTable, reload: Reason | None = None) -> None:
    """Raises an error if the query can call code that must not run with the privileges of its evaluation. Called before
    anything is compiled, because PostgreSQL calls functions of constants when it plans."""
    if reload is None and is_judged(table) and _has_same_views(conn, table):
        return
    require_types(conn, table)
    # The resolved text: the stored one may fail to parse where it does not name its operators.
    with looked_at(conn, table, meant(conn, table).query, "__pgt_judged") as (looking, _):
        parameters = {"probe": "pg_temp.__pgt_judged", "id": None if table.mirror is not None else table.pgt_id}
        looking.execute(statement("still_trusted"), parameters)


def _same_meaning(conn: Connection, table: StreamTable, compiled: Compiled) -> Reason | None:
    """Raises an error if the query now reads other tables or columns than when it was defined: the author's privileges
    were checked for the former only. Returns why it cannot be maintained from changes, if so.

    A replaced view may also do what a definition must not do, or what requires FULL.
    """
    query = (compiled.meant or {}).get("query") or table.query
    now = _meaning(conn, table, query)
    if now.stranger is not None and not table.runs_as_author:
        raise DefinitionError(
            now.stranger,
            hint="map both roles to one user, or let pgtrickle manage the origin, where privileges are checked then",
        )
    if table.mirror is None:  # a mirror's types are those of another database: see same_types
        _require_same_types(table, query, now.types)
    _require_same_reads(table, now)
    if compiled.template is not None and now.obstacle is not None:
        raise SourceChangedError(f"{now.obstacle}, which it did not when it was defined", hint=ANEW)
    return now.obstacle


@dataclass(frozen=True, slots=True)
class _Meaning:
    """The current meaning of a query's text. `reads`: relation, its name, columns; without those that are copied for an
    author. `types`: oid, modifier and name of each column's type. `obstacle`: why it cannot be maintained from changes.
    `stranger`: a foreign table whose user mapping differs between author and service."""

    reads: tuple[tuple[int, str, tuple[int, ...]], ...]
    types: tuple[tuple[int, int, str], ...]
    obstacle: Reason | None
    stranger: str | None


def _meaning(conn: Connection, table: StreamTable, query: str) -> _Meaning:
    with looked_at(conn, table, query, "__pgt_reads") as (looking, copies):
        probe = {"probe": "pg_temp.__pgt_reads"}
        rows = looking.execute(statement("reads"), probe).fetchall()
        types = looking.execute(statement("probe_types"), probe).fetchall()
        parameters = {**probe, "id": None if table.mirror is not None else table.pgt_id}
        usable, stranger = (looking.execute(statement("still_usable"), parameters).fetchone() or (None, None))[:2]
    reads = tuple((relid, name, tuple(columns)) for relid, name, columns in rows if name not in copies)
    return _Meaning(reads, tuple(types), None if usable is None else Reason.from_json(usable), stranger)


def _require_same_types(table: StreamTable, query: str, types: Sequence[tuple[int, int, str]]) -> None:
    wider: list[WiderColumn] = []
    message = ""
    for position, (column, (typid, typmod, type_)) in enumerate(zip(table.columns, types, strict=True)):
        # In a restored dump only oids differ, after the rename of a type only names.
        is_other = (typid, typmod) != (column.typid, column.typmod) and type_ != column.type
        # NULLIF has the modifier of its argument; the CASE that replaces it has none, and the same values.
        if not is_other or (query != table.query and (typid, typmod) == (column.typid, NO_MODIFIER)):
            continue
        message = f"column {column.name} of the query is of type {type_} now, and was {column.type}"
        if typid != column.typid or not is_wider(typid, column.typmod, typmod):
            raise SourceChangedError(message, hint=ANEW)
        wider.append(WiderColumn(position, column.name, type_, typmod))
    if wider:
        raise ColumnsWidenedError(message, wider, hint=ANEW)


def _require_same_reads(table: StreamTable, now: _Meaning) -> None:
    known = {s.relid: s.columns for s in table.sources}
    for relid, name, columns in now.reads:
        if relid not in known or not known[relid].issuperset(columns):
            what = "a column of " if relid in known else ""
            raise SourceChangedError(
                f"the query now reads {what}{name}, which it did not when it was defined: "
                "a table was renamed or a view replaced",
                hint=ANEW,
            )


def capture_source(
    conn: Connection,
    relid: int,
    columns: frozenset[int],
    look: Callable[[Connection, Iterable[int]], dict[int, str]] = fingerprints,
) -> str | None:
    """The fingerprint, read *before* capture was found to be complete, so never that of a state without a trigger."""
    fingerprint: str | None = None
    for _ in range(CAPTURE_TRIES):
        fingerprint = look(conn, [relid]).get(relid)
        if not ensure_capture(conn, relid, columns, deadline_s=CAPTURE_SECONDS):
            break
    return fingerprint


def _expect(conn: Connection, table: StreamTable, fingerprints: dict[int, str | None], reload: Reason | None) -> None:
    """Stores the current fingerprints for a table that will be loaded; its load compares them or prepares again."""
    with conn.transaction():
        if not _is_to_be_loaded(conn, table, reload):
            return
        expected = {"id": table.pgt_id, "relids": list(fingerprints), "fingerprints": list(fingerprints.values())}
        conn.execute(statement("fingerprints_expected"), expected)


def _is_to_be_loaded(conn: Connection, table: StreamTable, reload: Reason | None) -> bool:
    """Locks the catalog row until the end of the transaction; `reload`: why it has to be loaded."""
    expected = {"id": table.pgt_id, "version": table.definition_version}
    row = conn.execute(statement("load_needed"), expected).fetchone()
    if row is None or not (row[0] or reload is not None):
        return False
    if reload is not None:
        conn.execute(statement("reinit_marked"), {"id": table.pgt_id, **named(reload)})
    return True


def _record(conn: Connection, table: StreamTable, compiled: Compiled, *, is_renamed: bool) -> None:
    content, stored = _content(table, compiled), table.plan or {}
    stays = is_renamed and content == stored.get("content")
    with conn.transaction():
        row = conn.execute("SELECT current_setting('TimeZone')").fetchone()
        rests_on = {"time_zone": row[0] if row else None}
        if stays:
            rests_on = {key: stored[key] for key in ("time_zone", "functions") if key in stored}
        explained = compiled.explanation
        plan: dict[str, object] = {k: v for k, v in explained.items() if k in ("mode", "leaves", "load", "boundaries")}
        plan["meant"] = compiled.meant
        plan |= {"words": list(plan_words(explained)), "shape": _shape(table, compiled), "content": content, **rests_on}
        plan |= {"code": table.code, "keys": table.keys}
        recorded = {
            "id": table.pgt_id,
            "version": table.definition_version,
            "plan": json.dumps(plan),
            "mode": _mode(table, compiled),
            **named(compiled.reason),
            "stays": stays,
        }
        moved = conn.execute(statement("plan_recorded"), recorded).rowcount
        if moved and compiled.groups is not None and not stays:
            create_state(conn, compiled.groups)


def _mode(table: StreamTable, compiled: Compiled) -> str:
    if compiled.template is None or table.refresh_mode == "FULL":  # a member of a cycle has a template in any mode
        return "FULL"
    return "IMMEDIATE" if table.refresh_mode == "IMMEDIATE" else "DIFFERENTIAL"


def _shape(table: StreamTable, compiled: Compiled) -> str:
    """Everything that the stored content and state depend on, apart from the data."""
    return _hashed([table.definition_version, table.relid, compiled.load_sql, *_layout(compiled)])


def _content(table: StreamTable, compiled: Compiled) -> str:
    """The same without the names of sources and columns. Compared if nothing else has changed."""
    return _hashed([table.relid, without_names(compiled.load_sql), *_layout(compiled)])


def _layout(compiled: Compiled) -> list[object]:
    state: list[object] = []
    if compiled.groups is not None:
        state = [t.name for t in compiled.groups.key_types]
        state += [(c.name, c.type, c.fold) for c in compiled.groups.state]
    # Another way to compute identities requires a load.
    return [state, compiled.reason and compiled.reason.to_json(), compiled.target.identity_name]


def _hashed(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
