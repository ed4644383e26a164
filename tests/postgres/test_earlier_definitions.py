"""Definitions from before it was checked what code a query reaches: an upgrade checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from pgtrickle.db.install import install
from tests.conftest import ROLE, Database

EARLIER = """
UPDATE pgtrickle.pgt_stream_tables
SET is_judged = false, session_settings = '{}', operators = '{}', run_as = 'service', functions_reached = '{}',
    types_reached = '{}', tables_of_others = '{}', status = 'ACTIVE', is_populated = true;
DELETE FROM pgtrickle.pgt_privileges;
DELETE FROM pgtrickle.pgt_schema_version;
INSERT INTO pgtrickle.pgt_schema_version (version, package_version) VALUES (1, '0.1.0');
"""


def again(database: Database) -> dict[str, tuple[Any, ...]]:
    database.sql(EARLIER)
    with psycopg.connect(database.dsn) as conn:
        install(conn)
    rows = database.sql(
        "SELECT pgt_name::text, status, run_as, is_judged, last_error_message FROM pgtrickle.pgt_stream_tables"
    )
    return {row[0]: row[1:] for row in rows}


def test_what_would_be_refused_stops_and_the_rest_goes_on(
    installed: Database, make_role: Callable[[Database], psycopg.Connection[Any]]
) -> None:
    author = make_role(installed)
    name = author.info.user
    installed.superuser_sql(
        f"CREATE SCHEMA evil AUTHORIZATION {name}; GRANT {name} TO {ROLE}; CREATE TABLE public.t (id int PRIMARY KEY);"
        f"ALTER TABLE public.t OWNER TO {ROLE}; GRANT SELECT ON public.t TO {name}"
    )
    author.execute("CREATE FUNCTION evil.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1'")
    author.execute("SELECT pgtrickle.create_stream_table('evil.calls', 'SELECT evil.f(id) AS f FROM public.t')")
    author.execute("SELECT pgtrickle.create_stream_table('evil.plain', 'SELECT id + 1 AS n FROM public.t')")
    installed.sql("SELECT pgtrickle.create_stream_table('public.own', 'SELECT count(*) AS n FROM public.t')")
    found = again(installed)
    assert found["calls"] == ("ACTIVE", "author", True, None)
    assert found["plain"][:3] == found["own"][:3] == ("ACTIVE", "service", True)
    assert installed.sql("SELECT count(*) FROM pgtrickle.pgt_privileges") == [(2,)]  # of the author's two

    installed.superuser_sql(f"REVOKE {name} FROM {ROLE}; GRANT USAGE, CREATE ON SCHEMA evil TO {ROLE}")
    found = again(installed)
    status, _, is_judged, message = found["calls"]
    assert (status, is_judged) == ("ERROR", False)
    assert "evil.f(integer)" in message
    assert found["plain"][:3] == ("ACTIVE", "service", True)

    # Who resumes it gets nowhere: refreshes ask again.
    author.execute("SELECT pgtrickle.resume_stream_table('evil.calls')")
    ((lost,),) = installed.sql(
        "SELECT pgtrickle._lost_privilege(pgt_id) FROM pgtrickle.pgt_stream_tables WHERE pgt_name = 'calls'"
    )
    assert "define it again" in lost
    installed.superuser_sql("DROP SCHEMA evil CASCADE")


def test_an_author_who_is_gone_stops_the_table(installed: Database) -> None:
    installed.sql("CREATE TABLE t (id int PRIMARY KEY)")
    installed.sql("SELECT pgtrickle.create_stream_table('st', 'SELECT id FROM t')")
    installed.sql("UPDATE pgtrickle.pgt_stream_tables SET created_by = 'nobody', created_key = NULL")
    assert again(installed)["st"][0] == "ERROR"
