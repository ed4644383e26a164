"""How a stream table is, or a query would be, maintained: the same answer before and after it is created."""

from __future__ import annotations

from typing import Any

from pgtrickle.db import catalog
from pgtrickle.db.connect import TRANSACTION, connect, translated
from pgtrickle.errors import DefinitionError
from pgtrickle.runtime.compile import compile_table

_PROBE = "__pgt_planned"
FULL_WHEN = (
    "a source was truncated",
    "a partition, column, function or view that the query rests on was changed",
    "AUTO finds that the changes are more than differential_max_change_ratio of the sources or max_buffer_rows",
    "AUTO finds that the changes bring more rows than delta_work_mem_cap_mb has room for",
    "of a cycle of stream tables, rows have gone from a source",
    "AUTO expects it to be quicker, by what the latest refreshes took",
    "a value does not fit the exact types of a sum (AUTO)",
)


def plan_of(dsn: str, name: str | None, query: str | None) -> dict[str, Any]:
    """The plan of a stream table by name, or of a query, for which nothing is left behind."""
    with connect(dsn, role="plan", pooler=TRANSACTION) as conn, translated(), conn.transaction(force_rollback=True):
        if query is not None:
            # Names in it mean what they mean in a fresh session; afterwards nothing may be found by accident again.
            conn.execute('SET LOCAL search_path = "$user", public')
            conn.execute("SELECT pgtrickle.create_stream_table(%s, %s)", (f"public.{_PROBE}", query))
            conn.execute("SET LOCAL search_path = ''")
            name = f"public.{_PROBE}"
        wanted = [name] if name is not None and "." in name else [f"public.{name}"]
        for table in catalog.load_stream_tables(conn):
            if table.full_name in wanted or table.name == name:
                rows = conn.execute(
                    "SELECT st.pgt_relid::int8 FROM pgtrickle.pgt_stream_tables AS st "
                    "WHERE st.pgt_id = ANY (pgtrickle._cycle_of(%s))",
                    (table.pgt_id,),
                ).fetchall()
                compiled = compile_table(conn, table, frozenset(relid for (relid,) in rows))
                found: dict[str, Any] = {"mode": "FULL", "query": table.query, **compiled.explanation}
                if compiled.template is not None:
                    found["full_when"] = list(FULL_WHEN)
                return found
    raise DefinitionError(f"there is no stream table {name}", hint="pgtrickle status lists them")
