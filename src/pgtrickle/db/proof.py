"""Whether a password is that of a role."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

CONNECT_SECONDS = 5


def is_user(conn: Connection, user: str, password: str | None) -> bool:
    """Whether the password opens the database of `conn` for the user: whoever writes a user mapping can name anybody.

    As postgres_fdw asks it of all but superusers: a server that lets them in without a password proves nothing.
    """
    if not password:
        return False
    theirs = {"user": user, "password": password, "passfile": os.devnull, "connect_timeout": str(CONNECT_SECONDS)}
    try:
        with psycopg.connect(make_conninfo("", **{**conn.info.get_parameters(), **theirs})) as there:
            return bool(there.pgconn.used_password)
    except psycopg.OperationalError:
        return False
