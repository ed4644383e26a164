"""What a role can read, own and execute: the proof that an attempt was harmless."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psycopg

HERE = Path(__file__).parent
Conn = psycopg.Connection[Any]
State = set[tuple[str, str, str]]  # kind, name, all that matters of it

_SNAPSHOT = (HERE / "snapshot.sql").read_text()
# What the steps of others make for an attempt ends in its number, and is looked at through the attempt's role.
_FOR_ONE = re.compile(r"_\d+(_|\b)")
_ACL_ITEM = re.compile(r"([\w\"]*)=([a-zA-Z*]+)/([\w\"]+)")


def snapshot(conn: Conn) -> State:
    return {(kind, name, what or "") for kind, name, what in conn.execute(_SNAPSHOT).fetchall()}


def differences(before: State, after: State, service: str) -> list[str]:
    """What has changed in the database besides what the control plane does, and administrators for one attempt."""
    found = []
    was = {(kind, name): what for kind, name, what in before}
    for kind, name, what in sorted(after - before):
        if kind.startswith("private"):
            # as it makes them: its own, and nobody else's
            may = [service, "pgtrickle_broker", *([""] if kind.endswith("for moves") else [])]
            others = [who for who, _, _ in _ACL_ITEM.findall(what) if who not in may]
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
    gained = [w for w, _, by in rights if w != by and not re.fullmatch(r"(bob|robert|carol|readers)_\d+", w)]
    return not gained and _without_rights(was) == _without_rights(what)


def _without_rights(what: str) -> str:
    return re.sub(r"[{},]", "", _ACL_ITEM.sub("", what))


_RIGHTS = (HERE / "rights.sql").read_text()


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
def readable(url: str) -> tuple[str, ...]:
    """Every table, view and function without arguments of schema pgtrickle, as far as everybody may read it."""
    with psycopg.connect(url) as conn:
        relations = conn.execute(
            "SELECT format('(SELECT %s FROM %s)', string_agg(quote_ident(a.attname), ', '), c.oid::regclass) "
            "FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind IN ('r', 'v') "
            "AND has_column_privilege(c.oid, a.attnum, 'SELECT') GROUP BY c.oid"
        ).fetchall()
        functions = conn.execute(
            "SELECT format('pgtrickle.%I()', p.proname) FROM pg_proc AS p "
            "WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.pronargs - p.pronargdefaults = 0 "
            "AND p.prokind = 'f' AND p.provolatile <> 'v' AND p.prorettype <> 'trigger'::regtype "
            "AND has_function_privilege(p.oid, 'EXECUTE')"
        ).fetchall()
        told = [
            f"pgtrickle.{function}('reports.{table}')"
            for function in (
                "explain_st",
                "get_refresh_history",
                "export_definition",
                "explain_refresh_mode",
                "list_sources",
                "recommend_refresh_mode",
            )
            for table in ("words", "failing", "counted")
        ]
        return (*(r for (r,) in relations), *(f for (f,) in functions), *told)


def of_values(conn: Conn, word: str, tables: Sequence[Sequence[str]], *, whole: bool) -> list[str]:
    """What the role can read has none of the secrets in it."""
    conn.execute("SET statement_timeout = '300s'")
    sources = [*_SHOWN, *('"' + s + '"."' + n.replace('"', '""') + '"' for s, n in tables)]
    sources += [f'"{s}".log' for s, _ in tables]
    if whole:
        sources += readable(conn.info.dsn + f" password={conn.info.password}")
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
