"""`pgtrickle refresh`: refreshes stream tables of one database once, in this process, while no control plane runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from pgtrickle.db import catalog
from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, TransientError
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.engine.spark import SparkEngine
from pgtrickle.process.local_control_plane import LocalControlPlane
from pgtrickle.refresh.job import Outcome
from pgtrickle.servers.spark_address import SparkUrlWaiter
from pgtrickle.servers.spark_keeper import SparkSupervisor
from pgtrickle.settings import Settings, Sources

MOST_TICKS = 20  # readers of a table that was just loaded are refreshed in the next tick


def refresh_once(
    settings: Settings, sources: Sources, dsn: str, names: Sequence[str] | None, servers: Sequence[str] = ()
) -> list[Outcome]:
    """Refreshes these tables, or all; returns the latest outcome of each. `servers`: other servers of the fleet."""
    pins = {"search_path": "public"}  # for names without a schema
    with connect(dsn, role="refresh", pooler=TRANSACTION, pins=pins) as conn, translated():
        row = conn.execute(statement("has_scheduler")).fetchone()
        if row is not None and row[0]:
            raise ConfigError(
                "a control plane is running for this database", hint="CALL pgtrickle.refresh_and_wait('name')"
            )
        if names is None:
            conn.execute(statement("request_all"))
        else:
            for name in names:
                conn.execute("SELECT pgtrickle.refresh_stream_table(%s)", (name,))
    spark = SparkSupervisor(settings)
    spark.start()
    try:
        seconds = settings.spark_start_timeout_s
        engine = SparkEngine(SparkUrlWaiter(spark.address, seconds, seconds, threading.Event()))
        try:
            plane = LocalControlPlane("once", dsn, engine, sources, OriginSessions(servers))
            try:
                outcomes = [*_until_unchanged(plane), *_held(plane)]
                if names is None:
                    outcomes += _suspended(plane)
                return sorted(outcomes, key=lambda o: o.table.full_name)
            finally:
                plane.close()
        finally:
            engine.close()
    finally:
        spark.stop()


def _until_unchanged(plane: LocalControlPlane) -> list[Outcome]:
    latest: dict[int, Outcome] = {}
    for _ in range(MOST_TICKS):
        outcomes = [o for o in plane.tick() if o.action != "NO_DATA" or o.table.pgt_id not in latest]
        latest |= {o.table.pgt_id: o for o in outcomes}
        if not any(o.error is None and o.action != "NO_DATA" for o in outcomes):
            break
    return list(latest.values())


def _held(plane: LocalControlPlane) -> list[Outcome]:
    """Requested tables that were not refreshed, because one that they read has failed."""
    if not plane.held:
        return []
    with translated():
        tables = catalog.load_stream_tables(plane.control, list(plane.held))
    return [Outcome(t, "SKIP", None, TransientError(str(plane.held[t.pgt_id]))) for t in tables if t.refresh_requested]


def _suspended(plane: LocalControlPlane) -> list[Outcome]:
    """Tables that are not refreshed until a user resumes them."""
    with translated():
        messages: dict[int, str | None] = dict(plane.control.execute(statement("suspended")).fetchall())
        tables = catalog.load_stream_tables(plane.control, list(messages)) if messages else []
    hint = "SELECT pgtrickle.resume_stream_table(name)"
    return [Outcome(t, "SKIP", None, ConfigError(_suspension_message(messages[t.pgt_id]), hint=hint)) for t in tables]


def _suspension_message(message: str | None) -> str:
    return "it is suspended" + (f": {message}" if message else "")
