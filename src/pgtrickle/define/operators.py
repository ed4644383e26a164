"""A query's text with the operators that PostgreSQL resolved for its author (ADR 23).

The stored text does not name the operators of JOIN USING, NULLIF and similar constructs. Under our search_path they may
be others: citext is then compared as text. So the text is parsed with our path, its operators are compared with those
of the author, and constructs that differ are rewritten with explicit operators.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from pgtrickle.db.connect import SAFE_PATH, translated
from pgtrickle.db.statements import statement
from pgtrickle.define.author_query import looked_at
from pgtrickle.errors import NO_SUCH_FUNCTION, DefinitionError, SourceChangedError
from pgtrickle.model.catalog import Relation, StreamTable
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.pipeline.text import implicit_operators as implicit
from pgtrickle.pipeline.text.node_tree import implicitly_converted_type
from pgtrickle.pipeline.text.tokens import without_constants
from pgtrickle.telemetry import STATEMENT_REFUSED, event

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

log = logging.getLogger(__name__)

_VIEW = "__pgt_meaning"
_BUILT_IN = "OPERATOR(pg_catalog.=)"
_MOST_TRIES = 4_000
# Built-in objects have smaller oids.
FIRST_OF_USERS = 16384


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A text that has under our search_path the meaning of the author's text. `only_whole`: why it cannot be maintained
    from changes in this form."""

    query: str
    only_whole: Reason | None = None


def mark(table: StreamTable) -> str:
    """A hash of a text and its operators: stored in the plan, so that both are compared once."""
    parts = [table.query, *map(str, table.operators), str(table.session_settings.get("search_path"))]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def meant(conn: Connection, table: StreamTable) -> ResolvedQuery:
    """The resolved query; for tables of versions that did not store operators, the unchanged text."""
    if not table.session_settings or table.mirror is not None:
        return ResolvedQuery(table.query)
    known = (table.plan or {}).get("meant")
    if isinstance(known, dict) and known.get("mark") == mark(table):
        return ResolvedQuery(known["query"] or table.query, _kept_reason(known["only_whole"]))
    try:
        return explicit(conn, table.query, table.operators, table.session_settings.get("search_path"), table)
    except NotDifferentiableError as error:
        raise SourceChangedError(error.message, hint=error.hint) from error


def as_meant(table: StreamTable, resolved: ResolvedQuery) -> StreamTable:
    """The table with this text, which is not resolved again."""
    written = replace(table, query=resolved.query)
    return replace(written, plan={**(table.plan or {}), "meant": kept(written, resolved)})


def kept(table: StreamTable, resolved: ResolvedQuery) -> dict[str, Any]:
    """The value to store in the plan."""
    query = resolved.query if resolved.query != table.query else None
    return {"mark": mark(table), "query": query, "only_whole": resolved.only_whole and resolved.only_whole.to_json()}


def _kept_reason(stored: dict[str, Any] | str | None) -> Reason | None:
    """The reason stored in a plan. Plans of versions without reason codes contain the text of the only possible one."""
    if isinstance(stored, str):
        return Reason.of(ReasonCode.ROW_OPERATOR)
    return None if stored is None else Reason.from_json(stored)


def view_explicit(conn: Connection, relation: Relation, table: StreamTable) -> Relation:
    """A view that is expanded into the query: its operators are those of the view's author."""
    if relation.query is None:
        return relation
    row = conn.execute("SELECT pgtrickle._operators(%s::int8::oid)::int8[]", (relation.relid,)).fetchone()
    operators = row[0] if row is not None else []
    if not any(o >= FIRST_OF_USERS for o in operators):
        return relation
    resolved = explicit(conn, relation.query.strip().rstrip(";"), operators, None, table)
    if resolved.only_whole is not None:
        raise NotDifferentiableError(Reason.of(ReasonCode.IN_VIEW, view=relation.name, why=resolved.only_whole))
    return replace(relation, query=resolved.query)


def explicit(
    conn: Connection, query: str, operators: Sequence[int], path: str | None, table: StreamTable | None = None
) -> ResolvedQuery:
    """`path`: the author's; None if unknown. `table`: the stream table of the query, if it exists. Raises an error if
    the text cannot be rewritten with these operators."""
    expected = Counter(operators)
    ours = _operators(conn, table, query, SAFE_PATH)
    # Different operators of pg_catalog follow from changed column types.
    are_built_in = ours is not None and all(o < FIRST_OF_USERS for o in (*ours, *expected))
    if ours == expected or are_built_in:
        return ResolvedQuery(query)
    theirs = [tuple(row) for row in conn.execute(statement("operator_names"), {"operators": list(expected)}).fetchall()]
    schemas = list(dict.fromkeys(schema for _, schema, *_ in theirs))
    listed = [quote_ident(schema) for schema in schemas]
    text = implicit.row_comparisons_as_in(query)
    for tried in dict.fromkeys([_built_in_first(path), path, _built_in_first(", ".join(listed))]):
        if tried is not None and _operators(conn, table, text, tried) == expected:
            equal = [f"OPERATOR({s}.=)" for s, (_, _, n, _) in _named(listed, schemas, theirs) if n == "="]
            resolved = _Writer(conn, table, tried, list(dict.fromkeys(equal)), expected).write(text)
            if resolved is not None:
                return resolved
    names = ", ".join(name for *_, name in theirs) or "one of pg_catalog"
    raise NotDifferentiableError(
        Reason.of(ReasonCode.UNNAMED_OPERATOR, operators=names),
        hint="write the comparison with the operator, as in ON a.x OPERATOR(schema.=) b.x, and alter the query",
    )


def _built_in_first(path: str | None) -> str | None:
    """The types that the text does not qualify are those of pg_catalog."""
    return None if path is None else ", ".join(["pg_catalog", *filter(None, [path])])


def _named(
    listed: Sequence[str], schemas: Sequence[str], theirs: Sequence[tuple[int, str, str, str]]
) -> Iterator[tuple[str, tuple[int, str, str, str]]]:
    for row in theirs:
        yield listed[schemas.index(row[1])], row


@dataclass(slots=True)
class _Writer:
    conn: Connection
    table: StreamTable | None
    path: str
    equal: list[str]  # operators that the constructs may have
    wanted: Counter[int]
    tries: int = 0

    def write(self, text: str) -> ResolvedQuery | None:
        """Tries first without rewriting USING; rewriting one USING requires rewriting the enclosing ones."""
        for kinds in (frozenset({"USING"}), frozenset[str]()):
            placed = self._places(text, kinds)
            if placed is None:
                continue
            query, only_whole = placed
            if self._is_same(_operators(self.conn, self.table, query, SAFE_PATH), self.wanted):
                return ResolvedQuery(query, only_whole)
        return None

    def _places(self, text: str, left_alone: frozenset[str]) -> tuple[str, Reason | None] | None:
        only_whole = None
        before = self.wanted
        for number in range(len(implicit.implicit_comparisons(text)) - 1, -1, -1):
            place = implicit.implicit_comparisons(text)[number]
            if place.kind in left_alone:
                continue
            found = self._place(text, place, before)
            if found is None:
                return None
            new, now, has_own = found
            if has_own or place.kind == "USING":
                text, before = new, now
            if has_own and not place.is_maintained:
                only_whole = Reason.of(ReasonCode.ROW_OPERATOR)
        return text.replace(_BUILT_IN, "="), only_whole

    def _place(
        self, text: str, place: implicit.ImplicitComparison, before: Counter[int]
    ) -> tuple[str, Counter[int], bool] | None:
        for operators in product([*self.equal, _BUILT_IN], repeat=place.width):
            for new in implicit.with_operators(text, place, operators):
                self.tries += 1
                if self.tries > _MOST_TRIES:
                    return None
                now = _operators(self.conn, self.table, new, self.path)
                if now is not None and self._is_same(now, before):
                    return new, now, any(o != _BUILT_IN for o in operators)
        return None

    def _is_same(self, now: Counter[int] | None, before: Counter[int]) -> bool:
        """A rewritten expression that occurs twice has its operators twice."""
        return now is not None and now >= before and now.keys() == before.keys()


def _operators(conn: Connection, table: StreamTable | None, query: str, path: str) -> Counter[int] | None:
    """The operators of a text under a search_path; None if it cannot be parsed.

    PostgreSQL reads constants when it parses them. In a path of the author the name of a type may be that of another
    one, whose input runs code of the author: the operators are then looked up without the constants.
    """
    if path.partition(",")[0].strip() != "pg_catalog":
        query = without_constants(query)
    tree = _tree(conn, table, query, path)
    return None if tree is None else Counter(tree[1])


def _tree(
    conn: Connection, table: StreamTable | None, query: str, path: str = SAFE_PATH, relids: Collection[int] = ()
) -> tuple[str, list[int]] | None:
    """A parse tree and its operators. The text is parsed, but not executed."""
    try:
        with translated(), looked_at(conn, table, query, _VIEW, path=path, relids=relids) as (looking, _):
            row = looking.execute(statement("parse_tree"), {"view": f"pg_temp.{_VIEW}"}).fetchone()
    except DefinitionError:
        return None
    assert row is not None
    return row[0], row[1]


def makes_texts(conn: Connection, table: StreamTable, query: str) -> bool:
    """Whether the result of a query may depend on output formats."""
    with translated(), looked_at(conn, table, query, _VIEW) as (looking, _):
        row = looking.execute(f"SELECT pgtrickle._makes_texts('pg_temp.{_VIEW}'::pg_catalog.regclass)").fetchone()
    return row is not None and bool(row[0])


def own_types(conn: Connection) -> dict[int, tuple[int, str]]:
    """The types whose equality operator is not in pg_catalog: base type and name by oid."""
    return {oid: (base, name) for oid, base, name in conn.execute(statement("own_equality")).fetchall()}


def compared_otherwise(
    conn: Connection,
    table: StreamTable,
    types: dict[int, tuple[int, str]],
    statements: Sequence[str],
    relids: Collection[int],
) -> Reason | None:
    """Why our statements would compare values of these types by another operator."""
    bases = {oid: base for oid, (base, _) in types.items()}
    for text in dict.fromkeys(statements):
        tree = _tree(conn, table, f"SELECT 1 AS one FROM ({text}) AS statement", relids=relids)
        if tree is not None and (oid := implicitly_converted_type(tree[0], bases)) is not None:
            return Reason.of(ReasonCode.TYPE_COMPARED, type=types[oid][1])
    return None


def refused(error: DefinitionError, *, has_own_types: bool) -> Reason:
    """Why PostgreSQL refuses one of our statements. `has_own_types`: see own_types()."""
    if isinstance(error, NotDifferentiableError):
        return error.reason
    if has_own_types and error.sqlstate == NO_SUCH_FUNCTION:
        return Reason.of(ReasonCode.NO_OPERATOR)
    # Not for users: it is about a text that they have not written.
    log.warning("A statement for changes is refused", extra=event(STATEMENT_REFUSED, detail=error.message))
    if error.sqlstate == NO_SUCH_FUNCTION:  # such as the equality of json, in GROUP BY
        return Reason.of(ReasonCode.NO_OPERATOR)
    return Reason.of(ReasonCode.POSTGRESQL_REFUSES, state=error.sqlstate or "unknown")
