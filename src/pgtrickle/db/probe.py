"""Parses a query with PostgreSQL: a temporary view over it, or the position of a table of another database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from pgtrickle.db.connect import SAFE_PATH, translate
from pgtrickle.errors import DefinitionError, TransientError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

_PATH = "SELECT pg_catalog.set_config('search_path', %s, true)"
_VIEW = "CREATE TEMPORARY VIEW __pgt_probe AS "
_ELSEWHERE = "0A000"


def make_probe(conn: Connection, query: str, path: str = SAFE_PATH) -> int | None:
    """The view is pg_temp.__pgt_probe. Otherwise the position of the first name of the form database.schema.table.

    `path`: the search_path of the author. It applies to CREATE VIEW only: in other statements the author's functions
    and operators would run with the privileges of this session.
    """
    try:
        with conn.transaction():
            conn.execute(_PATH, (path,))
            # binary: uses the extended protocol, in which the server accepts only one statement.
            conn.execute(_VIEW + query, binary=True)
            conn.execute(_PATH, (SAFE_PATH,))
        return None
    except psycopg.Error as error:
        position = error.diag.statement_position
        if error.sqlstate == _ELSEWHERE and position is not None and int(position) > len(_VIEW):
            return int(position) - 1 - len(_VIEW)
        ours = translate(error)
        if isinstance(ours, TransientError):
            raise ours from error
        raise DefinitionError(f"the query is not valid: {ours.message}", hint=ours.hint) from error
