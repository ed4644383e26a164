"""Makes a stream table ready to be refreshed: compiled, its sources captured, its state table there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from pgtrickle.define.renames import ANEW, follow_origin, follow_renames, has_renamed, is_renamed_there
from pgtrickle.errors import DefinitionError, InvariantError, SourceChangedError, TransientError
from pgtrickle.model.catalog import Mirror, Relation, StreamTable, as_at_origin
from pgtrickle.model.texts import same_text
from pgtrickle.pipeline.templates.explain import plan_words
from pgtrickle.pipeline.text.tokens import without_names

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


@dataclass(frozen=True, slots=True)
class MirrorReader:
    """The database of mirrors, as their origins are told of it."""

    key: str
    server: str
    database: str


CAPTURE_TRIES = 3
CAPTURE_SECONDS = 0.3  # for a lock on a source; who does not get it tries again, the other tables do not wait for it


def prepare(
    conn: Connection, table: StreamTable, *, reload: str | None = None, cycle: frozenset[int] = frozenset()
) -> tuple[StreamTable, Compiled]:
    """Idempotent. `cycle`: the relations of its cycle, if it is in one. Returns the table, too: its query goes by the
    names that its sources have now.

    A changed shape (definition, types, state) marks the content for a new load and recreates the state; `reload` is
    another reason for that.
    """
    followed = follow_renames(conn, table)
    try:
        with translated():
            return followed, _ready(conn, followed, reload, cycle, is_renamed=followed is not table)
    except DefinitionError as error:
        # In between: then the names that it was looked for by are nobody's, or another's.
        if has_renamed(conn, followed):
            raise TransientError("a source was renamed while the query was looked at") from error
        raise


def _ready(
    conn: Connection, table: StreamTable, reload: str | None, cycle: frozenset[int], *, is_renamed: bool
) -> Compiled:
    judge(conn, table, reload)
    # Views before they are compiled, names after: what changes in between does not have the fingerprint noted here.
    found: dict[int, str | None] = dict.fromkeys(s.relid for s in table.watched if not s.capturable)
    found |= fingerprints(conn, found)
    compiled = compile_table(conn, table, cycle)
    for source in table.captured:
        columns = source.columns if compiled.template is not None else frozenset()
        found[source.relid] = _captured(conn, source.relid, columns)
    compiled = _settled(conn, conn, table, compiled, reload, is_renamed=is_renamed)
    _expect(conn, table, found, reload)
    return compiled


def prepare_mirror(
    origin: Connection, home: Connection, table: StreamTable, reader: MirrorReader, *, reload: str | None = None
) -> tuple[StreamTable, Compiled]:
    """The same for a mirror: its source is captured at its origin, where it is known as a reader from then on.

    That first: nobody may take the buffer for needless, or trim it, while it is being loaded.
    """
    mirror = table.mirror
    if mirror is None:
        raise InvariantError(f"{table.full_name} is not a mirror")
    with translated():
        table = follow_origin(home, table, _same_types(origin, table, mirror))
    try:
        with translated():
            return table, _mirror_ready(origin, home, table, reader, reload)
    except DefinitionError as error:
        if is_renamed_there(origin, table):
            raise TransientError("a table of the origin was renamed while it was looked at") from error
        raise


def _mirror_ready(
    origin: Connection, home: Connection, table: StreamTable, reader: MirrorReader, reload: str | None
) -> Compiled:
    mirror = table.mirror
    assert mirror is not None
    there = as_at_origin(table)
    origin.execute(
        statement("reader_register"),
        {
            "reader_key": reader.key,
            "mirror_id": table.pgt_id,
            "server": reader.server,
            "database": reader.database,
            "relid": mirror.relid,
            "columns": sorted(mirror.columns),
        },
    )
    judge(origin, there, reload)
    found = _captured(origin, mirror.relid, frozenset(mirror.columns), fingerprints_for_others)
    compiled = _by_key(home, compile_table(origin, there))
    compiled = _settled(origin, home, there, compiled, reload)
    with home.transaction():
        if _is_to_be_loaded(home, table, reload):
            home.execute(statement("mirror_fingerprints"), {"ids": [table.pgt_id], "fingerprints": [found]})
    return compiled


def _by_key(home: Connection, compiled: Compiled) -> Compiled:
    row = home.execute(statement("mirror_key"), {"table": compiled.target.table}).fetchone()
    key = tuple(row[0]) if row is not None and row[0] else ()
    return replace(compiled, target=replace(compiled.target, key=key))


def _same_types(origin: Connection, table: StreamTable, mirror: Mirror) -> Relation:
    """The table at its origin. Raises when it is gone, or a column has come to be of another type: the mirror's may
    take its values, but as others."""
    relations = catalog.relations(origin, [mirror.relid])
    if not relations:
        raise SourceChangedError(f"{mirror.name} does not exist any more", hint=ANEW)
    found = {c.attnum: c for c in relations[0].columns}
    for attnum, column in zip(mirror.columns, table.columns, strict=True):
        its = found.get(attnum)
        if its is not None and not same_text(its.type, column.type):
            raise SourceChangedError(
                f"column {its.name} of {mirror.name} is of type {its.type} now, and was {column.type}", hint=ANEW
            )
    return relations[0]


def _settled(
    there: Connection,
    home: Connection,
    table: StreamTable,
    compiled: Compiled,
    reload: str | None,
    *,
    is_renamed: bool = False,
) -> Compiled:
    """Proven where its sources are, recorded where the table is, if its shape is another one than before. The content
    stays if only names are (`is_renamed`).

    After a restart of ours nothing has to be proven again: changed sources show in their fingerprints, code that the
    query can reach by what the catalog says of it.
    """
    stored = (table.plan or {}).get("shape")
    if reload is not None or stored != _shape(table, compiled):
        compiled = prove_delta_statements(there, table, compiled)
        # What only FULL can follow may show names: rows as values, tableoid.
        is_renamed = _same_meaning(there, table, compiled) is None and is_renamed
    if stored != _shape(table, compiled):
        _record(home, table, compiled, is_renamed=is_renamed)
    elif not is_judged(table):
        home.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET plan = plan || %s::jsonb WHERE pgt_id = %s",
            (json.dumps({"code": table.code}), table.pgt_id),
        )
    return compiled


def is_judged(table: StreamTable) -> bool:
    """Whether the code that its query can reach is as it was when it was found to be trusted."""
    return table.plan is not None and table.plan.get("code") == table.code


def judge(conn: Connection, table: StreamTable, reload: str | None = None) -> None:
    """Raises when the query reaches code that must not run with the privileges that it is evaluated with. Before
    anything is compiled: PostgreSQL calls functions of constants when it plans."""
    if reload is None and is_judged(table):
        return
    # As it will be run: the kept text may not even be parsed where it does not name its operators.
    with looked_at(conn, table, meant(conn, table).query, "__pgt_judged") as (looking, _):
        asked = {"probe": "pg_temp.__pgt_judged", "id": None if table.mirror is not None else table.pgt_id}
        looking.execute(statement("still_trusted"), asked)


def _same_meaning(conn: Connection, table: StreamTable, compiled: Compiled) -> str | None:
    """Raises when the query's text reads other tables or columns than it did when the table was defined. Returns why it
    cannot be maintained from changes, if so.

    Whoever asked for those had the right to read them; nobody has asked for these. A view that was replaced may also do
    what a definition must not, or what only FULL can follow.
    """
    known = {s.relid: s.columns for s in table.sources}
    query = (compiled.meant or {}).get("query") or table.query
    with looked_at(conn, table, query, "__pgt_reads") as (looking, copies):
        probe = {"probe": "pg_temp.__pgt_reads"}
        rows = looking.execute(statement("reads"), probe).fetchall()
        types = looking.execute(statement("probe_types"), probe).fetchall()
        asked = {**probe, "id": None if table.mirror is not None else table.pgt_id}
        obstacle, stranger = (looking.execute(statement("still_usable"), asked).fetchone() or (None, None))[:2]
    if stranger is not None and not table.runs_as_author:
        raise DefinitionError(
            stranger, hint="map both to one user, or have its origin managed: then rights count there"
        )
    _check_column_types(table, types, is_rewritten=query != table.query)
    for relid, name, columns in rows:
        if name in copies:
            continue
        if relid not in known or not known[relid].issuperset(columns):
            what = "a column of " if relid in known else ""
            raise SourceChangedError(
                f"the query now reads {what}{name}, which it did not when it was defined: "
                "a table was renamed or a view replaced",
                hint=ANEW,
            )
    if compiled.template is not None and obstacle is not None:
        raise SourceChangedError(f"{obstacle}, which it did not when it was defined", hint=ANEW)
    return None if obstacle is None else str(obstacle)


def _check_column_types(table: StreamTable, types: Sequence[tuple[int, int, str]], *, is_rewritten: bool) -> None:
    """Raises when a column of the query has another type than the table was defined with."""
    for column, (typid, typmod, type_) in zip(table.columns, types, strict=True):
        # A mirror's are those of another database: see _same_types. Oids alone differ in a restored dump, names alone
        # where a type was renamed.
        is_other = (typid, typmod) != (column.typid, column.typmod) and type_ != column.type
        # NULLIF has the modifier of its argument; the CASE that is written for it has none, and the same values.
        is_other = is_other and not (is_rewritten and (typid, typmod) == (column.typid, -1))
        if is_other and table.mirror is None:
            raise SourceChangedError(
                f"column {column.name} of the query is of type {type_} now, and was {column.type}", hint=ANEW
            )


def _captured(
    conn: Connection,
    relid: int,
    columns: frozenset[int],
    look: Callable[[Connection, Iterable[int]], dict[int, str]] = fingerprints,
) -> str | None:
    """The fingerprint of a state that was found in order *after* it was read, so never of one that lacks a trigger."""
    found: str | None = None
    for _ in range(CAPTURE_TRIES):
        found = look(conn, [relid]).get(relid)
        if not ensure_capture(conn, relid, columns, deadline_s=CAPTURE_SECONDS):
            break
    return found


def _expect(conn: Connection, table: StreamTable, found: dict[int, str | None], reload: str | None) -> None:
    """A table that is about to be loaded takes over the sources' present state; its load finds it or prepares again."""
    with conn.transaction():
        if not _is_to_be_loaded(conn, table, reload):
            return
        conn.execute(
            "UPDATE pgtrickle.pgt_dependencies AS d SET fingerprint = f.fingerprint "
            "FROM unnest(%s::oid[], %s::text[]) AS f (relid, fingerprint) WHERE d.pgt_id = %s "
            "AND d.source_relid = f.relid AND d.fingerprint IS DISTINCT FROM f.fingerprint",
            (list(found), list(found.values()), table.pgt_id),
        )


def _is_to_be_loaded(conn: Connection, table: StreamTable, reload: str | None) -> bool:
    """Holds the catalog's row until the end of the transaction; `reload` is a reason to mark it."""
    row = conn.execute(
        "SELECT needs_reinit OR NOT is_populated FROM pgtrickle.pgt_stream_tables "
        "WHERE pgt_id = %s AND definition_version = %s FOR UPDATE",
        (table.pgt_id, table.definition_version),
    ).fetchone()
    if row is None or not (row[0] or reload):
        return False
    if reload:
        conn.execute(
            "UPDATE pgtrickle.pgt_stream_tables SET needs_reinit = true, epoch = epoch + 1, "
            "reinit_reason = coalesce(reinit_reason, %s) WHERE pgt_id = %s",
            (reload, table.pgt_id),
        )
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
        plan: dict[str, object] = {k: v for k, v in explained.items() if k in ("mode", "leaves", "load")}
        plan["meant"] = compiled.meant
        plan |= {"words": list(plan_words(explained)), "shape": _shape(table, compiled), "content": content, **rests_on}
        plan["code"] = table.code
        recorded = {
            "id": table.pgt_id,
            "version": table.definition_version,
            "plan": json.dumps(plan),
            "mode": _mode(table, compiled),
            "reason": compiled.reason,
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
    """What the stored content and state depend on besides the data."""
    return _hashed([table.definition_version, table.relid, compiled.load_sql, *_layout(compiled)])


def _content(table: StreamTable, compiled: Compiled) -> str:
    """The same whatever the sources and their columns are called. To be compared where nothing else has changed."""
    return _hashed([table.relid, without_names(compiled.load_sql), *_layout(compiled)])


def _layout(compiled: Compiled) -> list[object]:
    state: list[object] = []
    if compiled.groups is not None:
        state = [t.name for t in compiled.groups.key_types]
        state += [(c.name, c.type, c.fold) for c in compiled.groups.state]
    # A mirror of before, whose rows have Spark's identity, is loaded anew.
    return [state, compiled.reason, *(["identity by the database"] if compiled.target.is_mirror else [])]


def _hashed(parts: list[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
