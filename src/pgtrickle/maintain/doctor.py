"""Checks the requirements of pgtrickle and reports problems with a remedy."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import TRANSACTION
from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.maintain.budget import Budget, ConnectionRoom, budget, shortage
from pgtrickle.maintain.privileges import Rights, excess, rights_in
from pgtrickle.refresh.bulk_load import MAX_PARTS
from pgtrickle.replica.roots import problem, root_of
from pgtrickle.servers.java import find_java
from pgtrickle.settings import Settings, Sources

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

OLDEST, NEWEST = 13, 18
NEED_DISK_MIB = 600


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    what: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """The findings and the resource budget; `room` only with a server."""

    findings: tuple[Finding, ...]
    budget: Budget
    room: ConnectionRoom | None

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


def examine(sources: Sources, environ: Mapping[str, str], dsn: str | None) -> Report:
    server = _server(dsn, sources) if dsn else None
    settings = server.fleet if server is not None else sources.load().settings
    findings = [Finding("python", sys.version_info >= (3, 11), sys.version.split()[0])]
    if settings.spark_remote:
        findings.append(Finding("spark", True, "an external Spark Connect server is configured"))
    else:
        findings += [_java(settings, environ), _spark(), _disk()]
    findings.append(_replica_root(settings, environ))
    databases = server.databases if server is not None else {}
    mirrored = server.mirrored if server is not None else ()
    planned = budget(settings, databases, load_parts=MAX_PARTS, mirrored=mirrored)
    if server is not None:
        findings += server.findings
        if server.room is not None:
            findings += _limits(settings, planned, databases, server.room)
    return Report(tuple(findings), planned, server.room if server is not None else None)


def _java(settings: Settings, environ: Mapping[str, str]) -> Finding:
    warnings: list[str] = []
    try:
        java = find_java(settings.java_home, environ, warnings.append)
    except ConfigError as error:
        return Finding("java", False, error.one_line())
    return Finding("java", True, "; ".join([f"{java.version} from {java.origin}", *warnings]))


def _spark() -> Finding:
    is_installed = importlib.util.find_spec("pyspark") is not None
    return Finding(
        "spark", is_installed, "installed" if is_installed else "missing (hint: pip install 'pyspark[connect]')"
    )


def _disk() -> Finding:
    free = shutil.disk_usage(tempfile.gettempdir()).free >> 20
    detail = f"{free} MiB free for temporary files"
    return Finding("disk", free >= NEED_DISK_MIB, detail if free >= NEED_DISK_MIB else detail + " (hint: set TMPDIR)")


def _replica_root(settings: Settings, environ: Mapping[str, str]) -> Finding:
    root = root_of(settings.replica_root, environ)
    reason = problem(root)
    return Finding("replica_root", reason is None, f"{root} can be used" if reason is None else reason.one_line())


@dataclass(frozen=True, slots=True)
class _Server:
    findings: tuple[Finding, ...]
    fleet: Settings
    databases: Mapping[str, Settings]
    room: ConnectionRoom | None
    mirrored: tuple[frozenset[str], ...] = ()  # for each database, the origins of its mirrors


def _server(dsn: str, sources: Sources) -> _Server:
    from pgtrickle.db.connect import connect, translated
    from pgtrickle.db.database_settings import current_settings
    from pgtrickle.db.discover import databases, in_database, unserved
    from pgtrickle.db.statements import statement
    from pgtrickle.origin.poll_session import may_become_broker

    try:
        with connect(dsn, role="doctor", pooler=TRANSACTION) as connection, translated():
            row = connection.execute(
                "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
                "to_regclass('pgtrickle.pgt_stream_tables') IS NOT NULL"
            ).fetchone()
            room = connection.execute(statement("connection_room")).fetchone()
            assert row is not None
            assert room is not None
            fleet = sources.load(current_settings(connection))
            loaded = {connection.info.dbname: fleet}
            catalogs = databases(connection, dsn)
            others = unserved(connection, dsn)
        problems = [found for name, version in catalogs.items() if (found := version.problem(name)) is not None]
        names = [name for name, version in catalogs.items() if version.problem(name) is None]
        late: list[str] = []
        stopped: list[str] = []
        triggers: list[str] = []
        mirrored: list[frozenset[str]] = []
        rights: list[Rights | None] = []
        for name in names:
            with connect(in_database(dsn, name), role="doctor", pooler=TRANSACTION) as connection:
                if name not in loaded:
                    loaded[name] = sources.load(current_settings(connection))
                late += _late(connection)
                stopped += _stopped(connection)
                triggers += _triggers(connection)
                mirrored.append(_mirrored(connection))
                rights.append(rights_in(connection))
        is_brokered = any(found.settings.enable_refresh_broker for found in loaded.values())
        without = [name for name in names if is_brokered and not may_become_broker(in_database(dsn, name))]
    except PgtrickleError as error:
        return _Server((Finding("postgresql", False, error.one_line()),), sources.load().settings, {}, None)
    number, text, installed = row
    supported = OLDEST <= number // 10_000 <= NEWEST
    wrong = [f"{name}: {problem.message}" for name, found in loaded.items() for problem in found.problems]
    return _Server(
        (
            Finding("postgresql", supported, text if supported else f"{text}; {OLDEST} to {NEWEST} are supported"),
            Finding(
                "pgtrickle", installed, "installed" if installed else "not installed (hint: pgtrickle install DSN)"
            ),
            *(Finding("catalog", False, problem.one_line()) for problem in problems),
            *(
                Finding("databases", False, f"{name} is not served: pgtrickle was installed there by {owner}")
                for name, owner in others.items()
            ),
            *([_broker(without)] if is_brokered else []),
            *_privileges([found for found in rights if found is not None]),
            Finding(
                "settings",
                not wrong,
                "; ".join(wrong) or f"valid ({len(loaded)} database{'' if len(loaded) == 1 else 's'})",
            ),
            Finding("stream tables", not stopped, "; ".join(stopped) or "none is in status ERROR or SUSPENDED"),
            Finding(
                "triggers", not triggers, "; ".join(triggers) or "no trigger of a stream table relies on a search_path"
            ),
            Finding("readers", not late, "; ".join(late) or "no reader in another database blocks trimming"),
        ),
        fleet.settings,
        {name: loaded[name].settings for name in names},
        ConnectionRoom(*room),
        tuple(mirrored),
    )


def _mirrored(connection: Connection) -> frozenset[str]:
    from pgtrickle.db.connect import translated
    from pgtrickle.db.statements import statement

    with translated():
        row = connection.execute("SELECT to_regclass('pgtrickle.pgt_mirrors') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return frozenset()
        return frozenset(key for _, key, *_ in connection.execute(statement("mirrors")).fetchall())


def _stopped(connection: Connection) -> list[str]:
    """Stream tables that are not refreshed, or whose refreshes fail, and why."""
    from pgtrickle.db.connect import translated

    with translated():
        row = connection.execute("SELECT to_regprocedure('pgtrickle.pgt_status()') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return []
        rows = connection.execute(
            "SELECT name, status, last_error_message FROM pgtrickle.pgt_status() "
            "WHERE status IN ('ERROR', 'SUSPENDED') ORDER BY name"
        ).fetchall()
    database = connection.info.dbname
    return [f"{database}: {name} is in status {status}" + (f": {said}" if said else "") for name, status, said in rows]


def _triggers(connection: Connection) -> list[str]:
    """Refreshes call triggers with a search_path of pg_catalog alone."""
    from pgtrickle.db.connect import translated

    with translated():
        row = connection.execute("SELECT to_regprocedure('pgtrickle._triggers_along()') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return []
        rows = connection.execute("SELECT function, table_name, word, path FROM pgtrickle._triggers_along()").fetchall()
    name = connection.info.dbname
    return [
        f"{name}: {function}, a trigger of {table}, finds {word} along a search_path, and refreshes have none "
        f"(hint: ALTER FUNCTION {function} SET search_path = {path})"
        for function, table, word, path in rows
    ]


def _late(connection: Connection) -> list[str]:
    """Readers in other databases that have not reported for long and for which buffers of this one are kept."""
    from pgtrickle.db.connect import translated
    from pgtrickle.db.statements import statement

    name = connection.info.dbname
    with translated():
        row = connection.execute("SELECT to_regprocedure('pgtrickle.readers()') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return []
        rows = connection.execute(statement("late_readers")).fetchall()
    return [
        f"{name}: {reader or 'another database'} has not read {source} since {seen:%Y-%m-%d %H:%M}, "
        f"{changes} changes are kept for it ({size}) (hint: if it no longer exists: pgtrickle detach)"
        for reader, source, seen, changes, size in rows
    ]


def _privileges(rights: Sequence[Rights]) -> list[Finding]:
    """For each service role: a line per privilege that is not needed, or one line if there is none."""
    findings = []
    for service in sorted({found.service for found in rights}):
        listed = excess([found for found in rights if found.service == service])
        findings += [
            Finding("privileges", not one.is_bad, f"{service}: {one.what} (hint: {one.hint})") for one in listed
        ] or [Finding("privileges", True, f"{service} has exactly the privileges that it needs")]
    return findings


def _broker(without: Sequence[str]) -> Finding:
    """It works with both roles; the broker role can read less."""
    if not without:
        return Finding("broker", True, "polls sources as role pgtrickle_broker")
    hint = "CREATE ROLE pgtrickle_broker; GRANT pgtrickle_broker TO the role that installed; pgtrickle install again"
    return Finding("broker", True, f"polls sources as the service role in {', '.join(without)} (hint: {hint})")


def _limits(
    settings: Settings, planned: Budget, databases: Mapping[str, Settings], room: ConnectionRoom
) -> list[Finding]:
    needed = planned.total
    lack = shortage(needed, room)
    detail = (
        f"{needed.connections} at most, of {room.ours} "
        f"(max_connections {room.max_connections}, {room.reserved} reserved, {room.others} used by other applications)"
    )
    expected = settings.max_databases
    fits = not expected or len(databases) <= expected
    there = f"{len(databases)} with pgtrickle installed"
    if expected:
        there += f", max_databases {expected}" + (
            "" if fits else " (hint: raise max_databases; the budget is computed from it)"
        )
    if settings.connection_pooler_mode == TRANSACTION:
        # The pooler limits connections, and application_name does not identify its sessions.
        lack, detail = None, f"{needed.connections} at most, to the pooler"
    return [
        Finding("connections", lack is None, detail if lack is None else f"{detail} (hint: {lack})"),
        Finding("databases", fits, there),
    ]
