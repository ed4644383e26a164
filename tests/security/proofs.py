"""What a role can read, own and execute: the proof that an attempt was harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg

Conn = psycopg.Connection[Any]
State = set[tuple[str, str, str]]  # kind, name, all that matters of it

# Attempts' own schemas are looked at one by one; hidden tables of pgtrickle come and go, and are looked at below.
_SNAPSHOT = r"""
WITH rel AS (
    SELECT c.*, n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname !~ '^(evil_|pg_toast|pg_temp)' AND c.relkind <> 'i'
)
SELECT 'role', rolname::text, concat_ws(',', rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolbypassrls, rolconfig)
FROM pg_roles
UNION ALL SELECT 'member', concat_ws(' of ', member::regrole, roleid::regrole), (to_jsonb(m) - '{oid,grantor,member,roleid}'::text[])::text FROM pg_auth_members AS m
UNION ALL SELECT 'relation', format('%s.%s', nspname, relname), concat_ws(',', relkind, relowner::regrole, relacl, relrowsecurity, relforcerowsecurity, reloptions)
FROM rel WHERE nspname <> 'pgtrickle_changes'
UNION ALL SELECT 'column', format('%s.%s.%s', r.nspname, r.relname, a.attname), concat_ws(',', a.attacl, a.atttypid::regtype)
FROM rel AS r JOIN pg_attribute AS a ON a.attrelid = r.oid AND a.attnum > 0 WHERE r.nspname <> 'pgtrickle_changes' AND r.oid >= 16384
UNION ALL SELECT 'function', format('%s.%s', n.nspname, p.oid::regprocedure), concat_ws(',', p.proowner::regrole, p.proacl, p.prosecdef, p.proconfig, md5(p.prosrc))
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname !~ '^evil_' AND n.nspname <> 'pgtrickle_changes'
UNION ALL SELECT 'schema', nspname::text, concat_ws(',', nspowner::regrole, nspacl) FROM pg_namespace WHERE nspname !~ '^(evil_|pg_temp|pg_toast)'
UNION ALL SELECT 'defaults', concat_ws('.', defaclrole::regrole, defaclnamespace), defaclacl::text FROM pg_default_acl
UNION ALL SELECT 'event trigger', evtname::text, evtfoid::regproc::text FROM pg_event_trigger
UNION ALL SELECT 'database', datname::text, concat_ws(',', datdba::regrole, datacl) FROM pg_database
UNION ALL SELECT 'settings', concat_ws('.', setdatabase, setrole::regrole), setconfig::text FROM pg_db_role_setting
UNION ALL SELECT 'publication', pubname::text, pubowner::regrole::text FROM pg_publication
UNION ALL SELECT 'server', srvname::text, concat_ws(',', srvowner::regrole, srvacl, srvoptions) FROM pg_foreign_server
UNION ALL SELECT 'mapping', concat_ws('.', srvname, usename), umoptions::text FROM pg_user_mappings
UNION ALL SELECT 'large object', oid::text, concat_ws(',', lomowner::regrole, lomacl) FROM pg_largeobject_metadata
UNION ALL SELECT 'trigger', format('%s.%s.%s', r.nspname, r.relname, t.tgname), concat_ws(',', t.tgfoid::regproc, t.tgenabled)
FROM pg_trigger AS t JOIN rel AS r ON r.oid = t.tgrelid WHERE NOT t.tgisinternal
UNION ALL SELECT 'policy', format('%s.%s', p.polrelid::regclass, p.polname), md5(p.polqual::text) FROM pg_policy AS p JOIN rel AS r ON r.oid = p.polrelid
UNION ALL SELECT 'rule', format('%s.%s', r.nspname, r.relname), md5(string_agg(w.ev_action::text, '' ORDER BY w.oid))
FROM pg_rewrite AS w JOIN rel AS r ON r.oid = w.ev_class WHERE r.nspname <> 'pg_catalog' GROUP BY 2
UNION ALL SELECT 'extension', extname::text, extowner::regrole::text FROM pg_extension
UNION ALL SELECT 'language', lanname::text, lanacl::text FROM pg_language
UNION ALL SELECT 'private', format('%s.%s', r.nspname, r.relname), concat_ws(',', r.relowner::regrole, r.relacl) FROM rel AS r WHERE r.nspname = 'pgtrickle_changes'
UNION ALL SELECT 'private function', format('%s.%s', n.nspname, p.oid::regprocedure), concat_ws(',', p.proowner::regrole, p.proacl)
FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace WHERE n.nspname = 'pgtrickle_changes'
"""
# What the steps of others make for an attempt ends in its number, and is looked at through the attempt's role.
_FOR_ONE = re.compile(r"_\d+(_|\b)")
_ACL_ITEM = re.compile(r"([\w\"]*)=([a-zA-Z*]+)/[\w\"]+")


def snapshot(conn: Conn) -> State:
    return {(kind, name, what or "") for kind, name, what in conn.execute(_SNAPSHOT).fetchall()}


def differences(before: State, after: State, service: str) -> list[str]:
    """What has changed in the database besides what the control plane does, and administrators for one attempt."""
    found = []
    was = {(kind, name): what for kind, name, what in before}
    for kind, name, what in sorted(after - before):
        if kind.startswith("private"):
            # as it makes them: its own, and nobody else's
            others = [who for who, _ in _ACL_ITEM.findall(what) if who not in (service, "pgtrickle_broker")]
            if not what.startswith(service) or others:
                found.append(f"{kind} {name}: {what}")
        elif kind == "trigger" and re.search(r"\.pgtrickle_\d+_\w$", name):
            continue
        elif not _FOR_ONE.search(name) and not _same_for_others(was.get((kind, name)), what):
            found.append(f"{kind} {name} is now {what}")
    kept = {(kind, name) for kind, name, _ in after}
    for kind, name, what in sorted(before - after):
        if (kind, name) not in kept and not kind.startswith("private") and not _FOR_ONE.search(name):
            found.append(f"{kind} {name} is gone, was {what}")
    return found


def _same_for_others(was: str | None, what: str) -> bool:
    """The same but for rights that attackers have lost, or that others were given for one attempt. What attackers have
    got is new in any case."""
    if was is None:
        return False
    rights = set(_ACL_ITEM.findall(what)) - set(_ACL_ITEM.findall(was))
    gained = [who for who, _ in rights if not re.fullmatch(r"(bob|robert|carol|readers)_\d+", who)]
    return not gained and _ACL_ITEM.sub("", was).strip("{},") == _ACL_ITEM.sub("", what).strip("{},")


_RIGHTS = r"""
SELECT who.role, x.problem
FROM unnest(%(roles)s::text[], %(schemas)s::text[]) AS who(role, schema_name)
JOIN pg_roles AS known ON known.rolname = who.role
CROSS JOIN LATERAL (
SELECT format('it may %%s %%s', p, c.oid::regclass)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) AS p
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f')
  AND (n.nspname = 'pgtrickle_changes' OR (n.nspname = 'reports' AND c.relname !~ '_\d+$')
       OR (n.nspname = 'app' AND c.relname IN ('secret', 'secret_view', 'secret_copy', 'broken', 'people'))
       OR (n.nspname IN ('pgtrickle', 'app') AND p <> 'SELECT'))
  AND (has_table_privilege(who.role, c.oid, p)
       OR (p IN ('INSERT', 'UPDATE', 'REFERENCES') AND has_any_column_privilege(who.role, c.oid, p)))
UNION ALL
SELECT format('it may SELECT columns of %%s', c.oid::regclass)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v', 'm', 'p', 'f') AND has_any_column_privilege(who.role, c.oid, 'SELECT')
  AND (n.nspname = 'pgtrickle_changes' OR (n.nspname = 'reports' AND c.relname !~ '_\d+$') OR (n.nspname = 'app' AND c.relname IN ('secret', 'secret_view', 'secret_copy', 'broken')))
UNION ALL
SELECT 'it may read app.people.pay' WHERE has_column_privilege(who.role, 'app.people', 'pay', 'SELECT')
UNION ALL
SELECT format('it may execute %%s', p.oid::regprocedure)
FROM pg_proc AS p
WHERE (p.oid = 'app.secret_word()'::regprocedure OR p.pronamespace = 'pgtrickle_changes'::regnamespace)
  AND has_function_privilege(who.role, p.oid, 'EXECUTE')
UNION ALL
SELECT format('role %%s: %%s', r.rolname, w.what)
FROM pg_roles AS r
CROSS JOIN LATERAL (VALUES ('superuser', r.rolsuper), ('createrole', r.rolcreaterole), ('createdb', r.rolcreatedb), ('replication', r.rolreplication),
                           ('bypassrls', r.rolbypassrls)) AS w(what, is_so)
WHERE r.rolname = who.role AND w.is_so
UNION ALL
SELECT format('it is a member of %%s', m.roleid::regrole)
FROM pg_auth_members AS m
WHERE m.member = to_regrole(who.role) AND m.roleid::regrole::text !~ '_\d+$'
UNION ALL
SELECT format('role %%s was made', r.rolname) FROM pg_roles AS r WHERE starts_with(r.rolname, who.role || '_')
UNION ALL
SELECT format('it owns %%s of %%s, %%s', d.objid, d.classid::regclass, pg_describe_object(d.classid, d.objid, d.objsubid))
FROM pg_shdepend AS d
CROSS JOIN LATERAL pg_identify_object(d.classid, d.objid, d.objsubid) AS i
WHERE d.refclassid = 'pg_authid'::regclass AND d.refobjid = to_regrole(who.role) AND d.deptype = 'o'
  AND d.dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND coalesce(i.schema, i.identity) <> who.schema_name AND i.identity !~ ('^' || who.schema_name || '\M') AND coalesce(i.schema, '') !~ '^pg_temp'
  AND i.schema IS DISTINCT FROM 'pgtrickle_run' AND d.classid <> 'pg_user_mapping'::regclass
UNION ALL
SELECT format('in its schema %%s owns %%s', c.relowner::regrole, c.oid::regclass)
FROM pg_class AS c
WHERE c.relnamespace = to_regnamespace(who.schema_name) AND c.relowner::regrole::text NOT IN (who.role) AND c.relkind <> 'i'
  AND NOT (c.relowner::regrole::text = %(service)s AND EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = '__pgt_row_id'))
UNION ALL
SELECT format('in its schema %%s owns function %%s', p.proowner::regrole, p.oid::regprocedure)
FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(who.schema_name) AND p.proowner IS DISTINCT FROM to_regrole(who.role)
  AND p.prosrc !~ '^(multi)?range_constructor'  -- PostgreSQL's own, of each range type
UNION ALL
SELECT format('it has default privileges: %%s', d.defaclacl) FROM pg_default_acl AS d WHERE d.defaclacl::text ~ (who.role || '=')
) AS x(problem)
"""


def of_roles(conn: Conn, roles: Mapping[str, str], service: str) -> dict[str, list[str]]:
    """By role, with the schema of each: what it may do that it should not."""
    found: dict[str, list[str]] = {}
    asked = {"roles": list(roles), "schemas": list(roles.values()), "service": service}
    for role, problem in conn.execute(_RIGHTS, asked).fetchall():
        found.setdefault(role, []).append(problem)
    return found


# What shows other things to other roles.
_SHOWN = (
    "pgtrickle._messages",
    "pgtrickle._refresh_messages",
    "pgtrickle._job_messages",
    "pgtrickle._readers",
    "pgtrickle.pgt_status()",
    "pgtrickle.refresh_timeline(1000)",
    "pgtrickle.pending_definitions()",
    "pgtrickle._asked()",
    "pgtrickle.subscribers()",
    "pgtrickle.change_buffer_sizes()",
    "pg_catalog.pg_stat_activity",
)


@cache
def _readable(url: str) -> tuple[str, ...]:
    """Every table, view and function without arguments of schema pgtrickle, as far as everybody may read it."""
    with psycopg.connect(url) as conn:
        relations = conn.execute(
            "SELECT format('(SELECT %s FROM %s)', string_agg(quote_ident(a.attname), ', '), c.oid::regclass) "
            "FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'v') "
            "AND has_column_privilege(c.oid, a.attnum, 'SELECT') GROUP BY c.oid"
        ).fetchall()
        functions = conn.execute(
            "SELECT format('pgtrickle.%I()', p.proname) FROM pg_proc AS p WHERE p.pronamespace = 'pgtrickle'::regnamespace "
            "AND p.pronargs - p.pronargdefaults = 0 AND p.prokind = 'f' AND p.provolatile <> 'v' AND p.prorettype <> 'trigger'::regtype "
            "AND has_function_privilege(p.oid, 'EXECUTE')"
        ).fetchall()
        told = [
            f"pgtrickle.{function}('reports.{table}')"
            for function in ("explain_st", "get_refresh_history", "export_definition", "explain_refresh_mode", "list_sources", "recommend_refresh_mode")
            for table in ("words", "failing", "counted")
        ]
        return (*(r for (r,) in relations), *(f for (f,) in functions), *told)


def of_values(conn: Conn, word: str, tables: Sequence[Sequence[str]], *, whole: bool) -> list[str]:
    """What the role can read has none of the secrets in it."""
    conn.execute("SET statement_timeout = '10s'")
    sources = [*_SHOWN, *('"' + s + '"."' + n.replace('"', '""') + '"' for s, n in tables)]
    sources += [f'"{s}".log' for s, _ in tables]
    if whole:
        sources += _readable(conn.info.dsn + f" password={conn.info.password}")
    found = []
    for source in sources:
        try:
            rows = conn.execute(
                f"SELECT left(x::text, 400) FROM {source} AS x WHERE x::text LIKE %s OR x::text LIKE %s LIMIT 1",
                (f"%{word}%", "%SCRAM-SHA-256$%"),
            ).fetchall()
        except psycopg.Error as error:
            text = str(error)
            rows = [(text,)] if word in text else []
        found += [f"it reads in {source}: {text}" for (text,) in rows]
    return found
