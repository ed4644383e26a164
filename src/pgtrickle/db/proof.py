"""Checks the password of a role."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

CONNECT_SECONDS = 5


def is_user(conn: Connection, user: str, password: str | None) -> bool:
    """Whether the user can log in to the database of `conn` with this password: a user mapping can name any role.

    As postgres_fdw requires for all but superusers, the server must have asked for the password.
    """
    if not password:
        return False
    theirs = {"user": user, "password": password, "passfile": os.devnull, "connect_timeout": str(CONNECT_SECONDS)}
    try:
        with psycopg.connect(make_conninfo("", **{**conn.info.get_parameters(), **theirs})) as there:
            return bool(there.pgconn.used_password)
    except psycopg.OperationalError:
        return False
