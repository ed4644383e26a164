"""Stream tables of a database that was restored, cloned or upgraded: found again by name (docs/howto/backup.md).

The oids in the catalog are those of the original database. Stream tables are looked up by name; PostgreSQL parses each
query again, as its author, and the objects that it reads and names are recorded. The content is loaded again.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from pgtrickle.db import catalog
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.define.author_query import looked_at, with_copies
from pgtrickle.errors import DefinitionError, PgtrickleError, SourceChangedError, TransientError
from pgtrickle.model.catalog import StreamTable
from pgtrickle.pipeline.text.tokens import without_constants
from pgtrickle.telemetry import DATABASE_RESTORED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

_VIEW = "__pgt_restored"
_LOCK_MS = 1000
ANEW = "define it again with pgtrickle.alter_stream_table(name, query => ...)"


def adopt_restored(conn: Connection) -> int:
    """Binds all stream tables whose catalog rows come from another database to the relations of this one. Returns their
    number. For a query that cannot be evaluated here the reason is recorded, and it is retried at the next call."""
    with translated():
        row = conn.execute("SELECT pgtrickle._restored(), pgtrickle._is_whole()").fetchone()
        ids, is_whole = row or ([], True)
        if not ids:
            return 0
        if not is_whole:
            raise TransientError(
                "the catalog of pgtrickle has no foreign keys or triggers: a restore is not finished",
                hint="if the restore has failed, restore again",
            )
        with conn.transaction():
            conn.execute(f"SET LOCAL lock_timeout = '{_LOCK_MS}ms'")
            row = conn.execute("SELECT pgtrickle._rebind()").fetchone()
        tables = catalog.load_stream_tables(conn, ids)
    failed = [table.full_name for table in tables if table.mirror is None and not _is_adopted(conn, table)]
    if row is not None and row[0]:
        log.warning(
            "The database was restored or copied: its stream tables are loaded again",
            extra=event(DATABASE_RESTORED, database=conn.info.dbname, tables=len(row[0]), failed=failed),
        )
    return len(ids) - len(failed)


def _is_adopted(conn: Connection, table: StreamTable) -> bool:
    try:
        adopt(conn, table)
    except PgtrickleError as error:
        if isinstance(error, TransientError):
            raise
        with translated():
            said = {"id": table.pgt_id, "code": error.code, "message": error.one_line()}
            conn.execute(statement("restored_failed"), said)
        return False
    return True


def adopt_if_restored(conn: Connection, table: StreamTable) -> StreamTable:
    """The same for one table that is about to be prepared; returns the table afterwards."""
    if table.mirror is not None:
        return table
    with translated():
        row = conn.execute(statement("defined_elsewhere"), {"id": table.pgt_id}).fetchone()
    return adopt(conn, table) if row is not None and row[0] else table


def adopt(conn: Connection, table: StreamTable) -> StreamTable:
    """Parses its query again and records what it reads here. Raises an error if PostgreSQL refuses it, or if its
    columns differ."""
    if table.runs_as_author and with_copies(conn, table, table.query)[1]:
        raise SourceChangedError("it reads other databases and runs code of its author", hint=ANEW)
    # With the author's path, for what the text does not name.
    path = ", ".join(["pg_catalog", *filter(None, [table.session_settings.get("search_path")]), "pg_temp"])
    try:
        if not table.runs_as_author:
            _require_constants(conn, table, path)
        with translated(), looked_at(conn, table, table.query, _VIEW, path=path) as (looking, _):
            row = looking.execute(
                f"SELECT pgtrickle._understood(%s, 'pg_temp.{_VIEW}'::pg_catalog.regclass)", (table.pgt_id,)
            ).fetchone()
    except DefinitionError as error:
        raise SourceChangedError(
            f"after a restore its query cannot be evaluated: {error.message}", hint=error.hint or ANEW
        ) from error
    assert row is not None
    pgt_id = row[0]
    columns = [(c["name"], c["type"]) for c in pgt_id["columns"]]
    if columns != [(c.name, c.type) for c in table.columns]:
        raise SourceChangedError("after a restore its query has other columns", hint=ANEW)
    with translated(), conn.transaction():
        understood = (table.pgt_id, table.definition_version, json.dumps(pgt_id))
        taken = conn.execute("SELECT pgtrickle._take_over(%s, %s, %s::jsonb)", understood).fetchone()
        if taken is None or not taken[0]:
            raise TransientError("it was altered meanwhile")
        (adopted,) = catalog.load_stream_tables(conn, [table.pgt_id])
    return adopted


def _require_constants(conn: Connection, table: StreamTable, path: str) -> None:
    """Raises an error if reading the constants of the query may run code of the owners of their types. Only these are
    known by name, so other queries are not parsed without their constants, which some constructs require."""
    with translated():
        if conn.execute(statement("types_named"), {"id": table.pgt_id}).fetchone() is None:
            return
        with looked_at(conn, table, without_constants(table.query), _VIEW, path=path) as (looking, _):
            row = looking.execute(statement("constants_trusted"), {"probe": f"pg_temp.{_VIEW}"}).fetchone()
    if row is not None and row[0] is not None:
        raise SourceChangedError(f"after a restore {row[0]}", hint=ANEW)
