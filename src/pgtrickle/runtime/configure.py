"""Reads the settings that a database itself carries: postgresql.conf, ALTER DATABASE, ALTER ROLE: pg_trickle.x."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from pgtrickle.settings import ALIASES, DATABASE_PREFIX, Settings

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# pg_settings does not show placeholders such as ours, so known names are asked for one by one ...
_KNOWN = """
SELECT name, current_setting(name, true)
FROM unnest(%s::text[]) AS name
WHERE current_setting(name, true) IS NOT NULL
"""
# ... and names that nobody knows, and spark_conf.*, are found where ALTER DATABASE and ALTER ROLE put them.
_STORED = """
SELECT DISTINCT split_part(entry, '=', 1), current_setting(split_part(entry, '=', 1), true)
FROM pg_catalog.pg_db_role_setting AS s
CROSS JOIN LATERAL unnest(s.setconfig) AS entry
WHERE s.setdatabase IN (0, (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
  AND s.setrole IN (0, (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = current_user))
  AND lower(split_part(entry, '=', 1)) LIKE 'pg\\_trickle.%%'
  AND current_setting(split_part(entry, '=', 1), true) IS NOT NULL
"""


def database_settings(connection: Connection) -> dict[str, str]:
    """Names as in PostgreSQL (`pg_trickle.x`) and their values in this session."""
    names = [DATABASE_PREFIX + name for name in (*(f.name for f in fields(Settings)), *ALIASES)]
    rows = connection.execute(_KNOWN, [names]).fetchall()
    stored = connection.execute(_STORED, []).fetchall()
    # A setting that was set and reset in the session reads as an empty text, which for us means "not set".
    return {str(name).lower(): str(value) for name, value in [*rows, *stored] if value != ""}
