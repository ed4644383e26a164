"""`pgtrickle plan NAME --analyze`: computes a refresh with both engines in this process, without applying it."""

from __future__ import annotations

import os
from typing import Any

from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.dispatch.managed_database import session_pins
from pgtrickle.process.replica_commands import spark_engine
from pgtrickle.refresh.analyze import analyze
from pgtrickle.refresh.plan_requests import compiled_table
from pgtrickle.replica import ReplicaStore
from pgtrickle.replica.roots import root_of
from pgtrickle.settings import Settings


def analyze_table(settings: Settings, dsn: str, name: str) -> dict[str, Any]:
    """May run while `pgtrickle run` does, because it only reads."""
    table, compiled = compiled_table(dsn, name)
    pins = session_pins(settings)
    with (
        connect(dsn, role="plan", autocommit=True, pooler=TRANSACTION, pins=pins) as reader,
        spark_engine(settings) as engine,
    ):
        store = ReplicaStore(root_of(settings.replica_root, os.environ), engine)
        ways = analyze(reader, engine, store, table, compiled)
    return {"table": table.full_name, "ways": [way.to_json() for way in ways]}
