"""Plans a query without creating a stream table: it is defined and compiled in a transaction that is rolled back.

For the command, in the session of the caller; for CALL explain_query and validate_query(), in a session of ours with
the privileges of the calling role.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import SAFE_PATH, TRANSACTION, connect, translated
from pgtrickle.db.statements import statement
from pgtrickle.define.compile import compile_table
from pgtrickle.define.cross_database import PendingDefinition, define, pending
from pgtrickle.define.prepare import judge
from pgtrickle.define.privileges import lost_privilege
from pgtrickle.define.renames import follow_renames
from pgtrickle.errors import ConfigError, DefinitionError, InvariantError, PgtrickleError, SparkUnsupportedError
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import Reason
from pgtrickle.origin.sessions import OriginSessions
from pgtrickle.pipeline.templates.explain import plan_lines
from pgtrickle.refresh.cost_model import DIFFERENTIAL, FULL
from pgtrickle.refresh.spark_query import spark_query
from pgtrickle.telemetry import PLAN_REFUSED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.define.compile import Compiled
    from pgtrickle.model.catalog import StreamTable

log = logging.getLogger(__name__)

_PLANNED = "__pgt_planned"


def plan_of_table(dsn: str, name: str) -> dict[str, Any]:
    with connect(dsn, role="plan", pooler=TRANSACTION) as conn, translated(), conn.transaction(force_rollback=True):
        return _plan(conn, _named(conn, name))


def compiled_table(dsn: str, name: str) -> tuple[StreamTable, Compiled]:
    """Compiles the table as a refresh would; nothing is stored."""
    with connect(dsn, role="plan", pooler=TRANSACTION) as conn, translated(), conn.transaction(force_rollback=True):
        table = _named(conn, name)
        return table, _compiled(conn, table)


def _named(conn: Connection, name: str) -> StreamTable:
    """The table with the current names of its sources; raises an error if its query must not be evaluated."""
    _require_keeper(conn, "SELECT * FROM pgtrickle.explain_st('...')")
    full_name = name if "." in name else f"public.{name}"
    for table in catalog.load_stream_tables(conn):
        if table.full_name == full_name or table.name == name:
            if table.lost_privilege is not None:
                raise lost_privilege(table)
            if table.mirror is None:
                judge(conn, table)
                return follow_renames(conn, table)
            return table
    raise DefinitionError(f"there is no stream table {name}", hint="pgtrickle status lists them")


def plan_of_query(dsn: str, query: str) -> dict[str, Any]:
    """With the privileges of the session; everything is rolled back."""
    with connect(dsn, role="plan", pooler=TRANSACTION) as conn, translated(), conn.transaction(force_rollback=True):
        _require_keeper(conn, "CALL pgtrickle.explain_query('...')")
        # Names in it are resolved with the search_path of a new session; afterwards our path applies again.
        conn.execute('SET LOCAL search_path = "$user", public')
        conn.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"public.{_PLANNED}", query))
        conn.execute(f"SET LOCAL search_path = {SAFE_PATH}")
        for request in pending(conn):
            if (request.schema, request.name) == ("public", _PLANNED):  # it reads other databases
                define(conn, dsn, OriginSessions(), request)
        return _plan(conn, _found(conn, "public"))


def tell_plans(home: Connection, dsn: str, origins: OriginSessions) -> None:
    """Answers pending requests of explain_query and validate_query()."""
    with translated():
        home.execute(statement("plans_forgotten"))
        rows = home.execute(statement("plans_asked")).fetchall()
    for plan_id, query, path, role in rows:
        told = ("plan", "mode", "reason", "hint", "message")
        answer: dict[str, Any] = {"id": plan_id, **dict.fromkeys(told)}
        try:
            with translated(), home.transaction(force_rollback=True):
                # A schema in which the caller may create objects; it is rolled back with the transaction.
                home.execute(f"CREATE SCHEMA {_PLANNED}")
                home.execute(f"GRANT USAGE, CREATE ON SCHEMA {_PLANNED} TO {quote_ident(role)}")
                define(home, dsn, origins, PendingDefinition(_PLANNED, _PLANNED, None, query, {}, path, role))
                plan = _plan(home, _found(home, _PLANNED))
            answer |= {"plan": "\n".join(plan_lines(plan, statements=True)), "mode": plan["mode"]}
            answer |= {"reason": plan.get("reason"), "hint": plan.get("hint")}
        except PgtrickleError as error:
            if home.closed or home.broken:
                raise
            answer["message"] = error.one_line()
            log.info("A requested plan could not be made", extra=event(PLAN_REFUSED, detail=answer["message"]))
        with translated():
            home.execute(statement("plan_told"), answer)


def _require_keeper(conn: Connection, hint: str) -> None:
    """Compiling requires the privileges of the control plane."""
    if not catalog.is_keeper(conn):
        raise ConfigError("only the role that installed pgtrickle may run pgtrickle plan", hint=f"in psql: {hint}")


def _found(conn: Connection, schema: str) -> StreamTable:
    for table in catalog.load_stream_tables(conn):
        if (table.schema, table.name) == (schema, _PLANNED):
            return table
    raise InvariantError("the query to plan was not defined")


def _compiled(conn: Connection, table: StreamTable) -> Compiled:
    rows = conn.execute(statement("cycle_relids"), {"id": table.pgt_id}).fetchall()
    return compile_table(conn, table, frozenset(relid for (relid,) in rows))


def _plan(conn: Connection, table: StreamTable) -> dict[str, Any]:
    compiled = _compiled(conn, table)
    document: dict[str, Any] = {"mode": FULL, "query": table.query, **compiled.explanation}
    if compiled.reason is not None:
        document["hint"] = compiled.reason.hint
    if compiled.template is not None:
        ((document["full_when"],),) = conn.execute("SELECT pgtrickle._full_when()").fetchall()
    return {**document, **_engine(conn, table, compiled)}


def _engine(conn: Connection, table: StreamTable, compiled: Compiled) -> dict[str, Any]:
    """The engine that was chosen, what evaluated the latest refresh and why, and what Spark cannot evaluate."""
    latest = conn.execute("SELECT engine, engine_reason FROM pgtrickle._last_engine(%s)", (table.pgt_id,)).fetchone()
    last_engine, reason = latest or (None, None)
    document = {"engine": table.engine, "last_engine": last_engine, "engine_reason": reason}
    if table.mirror is not None:  # a copy: there is nothing to evaluate
        return document
    return {**document, "spark_obstacles": _spark_obstacles(conn, table, compiled)}


def _spark_obstacles(conn: Connection, table: StreamTable, compiled: Compiled) -> dict[str, str | None]:
    """By mode, why Spark cannot evaluate a refresh; None: it can."""
    query = spark_query(conn, table, compiled)
    if isinstance(query, Reason):
        return {FULL: str(query), DIFFERENTIAL: str(query)}
    if isinstance(query.changes, Reason):
        return {FULL: None, DIFFERENTIAL: str(query.changes)}
    try:
        query.changes.of(query.query.inputs)
    except SparkUnsupportedError as error:
        return {FULL: None, DIFFERENTIAL: error.message}
    return {FULL: None, DIFFERENTIAL: None}
