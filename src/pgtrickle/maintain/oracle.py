"""What a stream table is verified against: the query as its author typed it, parsed with the author's search_path.

It is parsed once, as a view, and must resolve to the same objects as for the author: the same operators, functions and
relations. A role that may create functions in that path could otherwise make us run them. It must not call other code
either, such as the check of a domain that now has the name of a type. The view is then read with our own search_path
and the author's settings, independent of the text that refreshes use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.probe import make_probe
from pgtrickle.db.statements import statement
from pgtrickle.errors import ConfigError, DefinitionError
from pgtrickle.maintain.compare import column_list
from pgtrickle.model.reasons import NotDifferentiableError
from pgtrickle.pipeline.text.tokens import without_constants

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection
    from pgtrickle.model.catalog import StreamTable

VIEW = "pg_temp.__pgt_probe"
AS_TYPED = "the query as its author typed it"
AS_KEPT = "the stored query text"
AS_OF = "the stored query text at the table's cut"
AS_OF_TYPED = f"{AS_OF}, which equals {AS_TYPED} over the rows of now"
TEXT_DIFFERS = f"{AS_TYPED}, over the rows of now: the stored query text returns other rows"
AT_CUTS = "the stored query text over copies of the tables of other databases at the table's cuts"
TIES_DECIDED = "the query with a total order for the ties of its LIMIT"


@dataclass(frozen=True, slots=True)
class TypedQuery:
    """The author's text, or a query over a view of it. `path`: the search_path that the text needs, in a session of the
    author: no view there, because the author's code could read it, and call itself."""

    query: str
    path: str | None = None


def as_typed(conn: Connection, table: StreamTable) -> TypedQuery | None:
    """The view is dropped with the transaction; None if the text can no longer be parsed with its
    meaning: for tables of versions that did not store settings, of other databases, or with names that have another
    meaning now."""
    path = table.session_settings.get("search_path")
    row = conn.execute(statement("original"), {"id": table.pgt_id}).fetchone()
    if path is None or row is None:
        return None
    text, functions = row
    try:
        with translated(), conn.transaction():
            # First without its constants: names may have another meaning now, and reading a constant may run code.
            if conn.execute("SELECT current_user = %s", (table.author,)).fetchone() != (True,):
                if make_probe(conn, without_constants(text), path) is not None:
                    return None
                untrusted = conn.execute(statement("constants_trusted"), {"probe": VIEW}).fetchone()
                conn.execute(f"DROP VIEW {VIEW}")
                if untrusted != (None,):
                    return None
            if make_probe(conn, text, path) is not None:
                return None
            found = conn.execute(statement("probe_meaning"), {"view": VIEW}).fetchone()
            assert found is not None
            read = {s.relid for s in table.sources}
            if tuple(found[0]) != table.operators or found[1] != functions or not read.issuperset(found[2]):
                raise DefinitionError("the text no longer has the same meaning")
            conn.execute(statement("still_trusted"), {"probe": VIEW, "id": table.pgt_id})
    except (ConfigError, DefinitionError, NotDifferentiableError):
        return None
    return TypedQuery(f"SELECT {column_list(table)} FROM {VIEW}")
