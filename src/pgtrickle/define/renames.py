"""Follows renames of sources and columns: the query refers to the relation, as that of a view does (ADR 21).

The stored text has the old names. PostgreSQL parses it over empty tables with these names; the tables are renamed, and
PostgreSQL prints the text again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.probe import make_probe
from pgtrickle.db.statements import statement
from pgtrickle.errors import DefinitionError, SourceChangedError, TransientError
from pgtrickle.model.catalog import Relation, StreamTable
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.pipeline.text.references import references_to
from pgtrickle.pipeline.text.tokens import identifier, tokenize
from pgtrickle.telemetry import RENAME_FOLLOWED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

# Not in any search_path, so names in it are printed with the schema; its tables are rolled back.
_SHELLS = "pgtrickle_changes"
ANEW = "define it again with pgtrickle.alter_stream_table(name, query => ...)"


@dataclass(frozen=True, slots=True)
class _Column:
    now: str
    before: str | None  # None: the query does not name it
    type: str


@dataclass(frozen=True, slots=True)
class _Renamed:
    """A row of renamed.sql."""

    relid: int
    schema: str
    name: str
    schema_now: str
    name_now: str
    key: str | None
    columns: tuple[_Column, ...]

    def __str__(self) -> str:
        """For people."""
        label = f"{self.schema}.{self.name}"
        told = [f"column {c.before} of {label} is {c.now} now" for c in self.columns if c.before not in (None, c.now)]
        if (self.schema, self.name) != (self.schema_now, self.name_now):
            told.insert(0, f"{label} is {self.schema_now}.{self.name_now} now")
        return ", ".join(told)


def follow_renames(conn: Connection, table: StreamTable) -> StreamTable:
    """Rewrites the query with the current names of its sources and records it; returns the table. Raises an error if
    the query cannot be rewritten."""
    if not table.is_in_place:
        return table
    with translated(), conn.transaction():
        rows = conn.execute(statement("renamed"), {"id": table.pgt_id}).fetchall()
        names = conn.execute(statement("names_changed"), {"id": table.pgt_id}).fetchall()
        for *_, before, now, in_text in names:
            if in_text:
                raise SourceChangedError(f"{before}, which the query names, is {now} now", hint=ANEW)
        if not (rows or names) or not _is_locked(conn, table):
            return table
        renamed = [replace(_Renamed(*row), columns=tuple(_Column(*c) for c in row[-1])) for row in rows]
        what = "; ".join([*map(str, renamed), *(f"{before} is {now} now" for *_, before, now, _ in names)])
        try:
            query = _rewritten(conn, table, renamed)
            typed = typed_text(conn, table.pgt_id, query) if query != table.query else None
        except DefinitionError as error:
            if conn.execute(statement("renamed"), {"id": table.pgt_id}).fetchall() != rows:
                raise TransientError("a source was renamed again while the query was rewritten") from error
            raise SourceChangedError(
                f"{what}, and the query cannot be rewritten: {error.message}", hint=ANEW
            ) from error
        # Names in views, whose texts are current.
        conn.execute(statement("names_followed"), {"id": table.pgt_id})
        conn.execute(
            statement("renames_followed"),
            {
                "id": table.pgt_id,
                "query": query,
                "typed": typed,
                "relids": [r.relid for r in renamed],
                "schemas": [r.schema_now for r in renamed],
                "names": [r.name_now for r in renamed],
                "columns": [json.dumps({c.before: c.now for c in r.columns if c.before}) for r in renamed],
            },
        )
        (followed,) = catalog.load_stream_tables(conn, [table.pgt_id])
    log.info("A renamed source is followed", extra=event(RENAME_FOLLOWED, table=table.full_name, detail=what))
    return followed


def has_renamed(conn: Connection, table: StreamTable) -> bool:
    """Whether a rename of an object that it reads or names has not been followed yet."""
    if not table.is_in_place:
        return False
    with translated():
        rows = (conn.execute(statement(q), {"id": table.pgt_id}).fetchone() for q in ("renamed", "names_changed"))
        return any(row is not None for row in rows)


def _is_locked(conn: Connection, table: StreamTable) -> bool:
    """False: it was altered meanwhile; the next preparation detects this."""
    wanted = {"id": table.pgt_id, "version": table.definition_version}
    return conn.execute(statement("definition_lock"), wanted).fetchone() is not None


def follow_origin(home: Connection, table: StreamTable, relation: Relation) -> StreamTable:
    """Records the current names of a mirror's table (`relation`) at the origin. Not for mirrors of foreign or declared
    tables, which refer to the origin by name."""
    mirror = table.mirror
    assert mirror is not None
    names = {c.attnum: c.name for c in relation.columns}
    columns = tuple(
        replace(column, name=names.get(attnum, column.name))
        for attnum, column in zip(mirror.columns, table.columns, strict=True)
    )
    if (relation.schema, relation.name, columns) == (mirror.schema, mirror.table, table.columns):
        return table
    with translated(), home.transaction():
        parameters = (table.pgt_id, table.definition_version, relation.schema, relation.name, [c.name for c in columns])
        row = home.execute("SELECT pgtrickle._rename_mirror(%s, %s, %s, %s, %s::text[]::name[])", parameters).fetchone()
        if row is None or not row[0]:
            return table
        # Its readers follow the columns themselves, and then have a new text as well.
        for pgt_id, query in home.execute(statement("readers_of"), {"relid": table.relid}).fetchall():
            typed = typed_text(home, pgt_id, query)
            home.execute(statement("typed_text_stored"), {"id": pgt_id, "typed": typed})
    log.info("A renamed source is followed", extra=event(RENAME_FOLLOWED, table=table.full_name, detail=mirror.name))
    (followed,) = catalog.load_stream_tables(home, [table.pgt_id])
    return followed


def is_renamed_there(origin: Connection, table: StreamTable) -> bool:
    """Whether the table of a mirror, or a column, was renamed at its origin."""
    mirror = table.mirror
    assert mirror is not None
    tokens = tokenize(table.query)  # SELECT m.a, m.b FROM ...: see _mirror_query
    columns = [identifier(table.query[t.start : t.end]) for t in tokens[3::4][: len(mirror.columns)]]
    parameters = {"relid": mirror.relid, "schema": mirror.schema, "table": mirror.table}
    with translated():
        row = origin.execute(
            statement("origin_renamed"), parameters | {"attnums": list(mirror.columns), "columns": columns}
        ).fetchone()
    return row is not None and bool(row[0])


def require_types(conn: Connection, table: StreamTable) -> None:
    """Raises an error if a type that the query names was dropped or renamed. To parse the query reads its constants,
    and a type of the same name may run code for that."""
    if table.mirror is not None or table.runs_as_author:
        return
    row = conn.execute(statement("types_replaced"), {"id": table.pgt_id}).fetchone()
    if row is not None:
        raise SourceChangedError(f"type {row[0]}, which the query names, was dropped or renamed", hint=ANEW)


def _rewritten(conn: Connection, table: StreamTable, renamed: Sequence[_Renamed]) -> str:
    keywords = catalog.keywords(conn)
    # A relation that is only read through a view is not in the text: PostgreSQL maintains views.
    named = [r for r in renamed if references_to(table.query, (r.schema, r.name), keywords)]
    if not named:
        return table.query
    if table.runs_as_author:  # PostgreSQL would run code of the author with our role
        raise DefinitionError(f"it runs as {table.author}, so the service role does not analyse it")
    require_types(conn, table)
    # Operators that the text does not name are resolved with the author's path, everything else in pg_catalog.
    path = ", ".join(["pg_catalog", *filter(None, [table.session_settings.get("search_path")]), "pg_temp"])
    with translated(), conn.transaction(force_rollback=True):
        text = _through_shells(conn, table.query, named, keywords, path)
    with translated(), conn.transaction(force_rollback=True):
        text, columns = _understood(conn, text, path)
    if [(c["name"], c["typid"], c["typmod"]) for c in columns] != [(c.name, c.typid, c.typmod) for c in table.columns]:
        raise DefinitionError("its columns would change")
    return text


def _through_shells(conn: Connection, text: str, named: Sequence[_Renamed], keywords: frozenset[str], path: str) -> str:
    """In a transaction that is rolled back."""
    # One at a time: two with the same names would wait for each other.
    conn.execute("SELECT pg_advisory_xact_lock(hashtextextended('pgtrickle.shells', 0))")
    under_own_names = _are_free(conn, [r.name for r in named], [r.name_now for r in named])
    shells = [r.name if under_own_names else f"__pgt_shell_{i}" for i, r in enumerate(named)]
    for shell, its in zip(shells, named, strict=True):
        # A relation without an alias gets none if possible: then the text is what PostgreSQL prints for a view.
        for place in references_to(text, (its.schema, its.name), keywords):
            text = place.replaced(text, _SHELLS, shell, with_alias=not under_own_names)
    for shell, its in zip(shells, named, strict=True):
        _make_shell(conn, shell, its)
    if make_probe(conn, text, path) is not None:
        raise DefinitionError("it names another database")
    for i, (shell, its) in enumerate(zip(shells, named, strict=True)):
        where = f"{_SHELLS}.{quote_ident(shell)}"
        _rename_columns(conn, where, _columns(its))
        if under_own_names:
            conn.execute(f"ALTER TABLE {where} RENAME TO __pgt_shell_{i}")
    if under_own_names:
        shells = [r.name_now for r in named]
        for i, shell in enumerate(shells):
            conn.execute(f"ALTER TABLE {_SHELLS}.__pgt_shell_{i} RENAME TO {quote_ident(shell)}")
    text, _ = _text_of_probe(conn)
    places = [
        (place, its)
        for shell, its in zip(shells, named, strict=True)
        for place in references_to(text, (_SHELLS, shell), keywords)
    ]
    for place, its in sorted(places, key=lambda found: -found[0].start):
        text = place.replaced(text, its.schema_now, its.name_now, with_alias=False)
    return text


def _make_shell(conn: Connection, shell: str, its: _Renamed) -> None:
    """Without LIKE, which requires the privilege to read the whole relation."""
    where = f"{_SHELLS}.{quote_ident(shell)}"
    columns = ", ".join(f"{quote_ident(c.now)} {c.type}" for c in its.columns)
    conn.execute(f"CREATE TABLE {where} ({columns})")
    if its.key is not None:
        conn.execute(f"ALTER TABLE {where} ADD CONSTRAINT __pgt_key_{its.relid} {its.key}")
    _rename_columns(conn, where, [(now, before) for before, now in _columns(its)])


def _columns(its: _Renamed) -> list[tuple[str, str]]:
    """Old and new names. An unused column must not have the name of a used one."""
    taken = {c.before for c in its.columns}
    return [(c.before or (f"__pgt_other_{i}" if c.now in taken else c.now), c.now) for i, c in enumerate(its.columns)]


def _are_free(conn: Connection, before: list[str], now: list[str]) -> bool:
    if len(set(before)) < len(before) or len(set(now)) < len(now):
        return False
    if any(name.startswith("__pgt_shell_") for name in before + now):
        return False
    row = conn.execute(statement("names_taken"), {"schema": _SHELLS, "names": before + now}).fetchone()
    return row is not None and not row[0]


def _rename_columns(conn: Connection, relation: str, names: Sequence[tuple[str, str]]) -> None:
    """Through temporary names, because two columns may swap names."""
    renamed = [(old, new) for old, new in names if old != new]
    for i, (old, _) in enumerate(renamed):
        conn.execute(f"ALTER TABLE {relation} RENAME COLUMN {quote_ident(old)} TO __pgt_between_{i}")
    for i, (_, new) in enumerate(renamed):
        conn.execute(f"ALTER TABLE {relation} RENAME COLUMN __pgt_between_{i} TO {quote_ident(new)}")


def _understood(conn: Connection, text: str, path: str) -> tuple[str, list[dict[str, Any]]]:
    """The text as PostgreSQL prints it, and its columns."""
    if make_probe(conn, text, path) is not None:
        raise DefinitionError("it names another database")
    return _text_of_probe(conn)


def _text_of_probe(conn: Connection) -> tuple[str, list[dict[str, Any]]]:
    row = conn.execute(
        "SELECT d.defining_query, d.output_columns "
        "FROM pgtrickle._describe('pg_temp.__pgt_probe'::pg_catalog.regclass) AS d"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def typed_text(conn: Connection, pgt_id: int, query: str) -> str:
    """The query as a user would type it: with the names of tables of other databases, not of mirrors."""
    keywords = catalog.keywords(conn)
    for mirror, parts in conn.execute(statement("mirror_names"), {"id": pgt_id}).fetchall():
        for place in references_to(query, (_SHELLS, mirror), keywords):
            query = place.replaced(query, *parts)
    return query
