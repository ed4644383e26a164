"""Compiles stream tables: parse, differentiate, ask PostgreSQL for types, describe the result for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.groups import Groups, KeyType, StateColumn
from pgtrickle.apply.target import Target
from pgtrickle.apply.topk import TopK
from pgtrickle.db import catalog
from pgtrickle.db.author import Copy
from pgtrickle.db.connect import translated
from pgtrickle.define import operators as meaning
from pgtrickle.define.author_query import QueryDescriber, unreadable, with_copies
from pgtrickle.errors import NO_SUCH_FUNCTION, DefinitionError
from pgtrickle.model.catalog import REGION, REGION_COLUMN, Relation, StreamTable
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.model.session import evaluated, other_formats
from pgtrickle.pipeline.codec import UNFORMATTED, SqlType, encoded, exact
from pgtrickle.pipeline.parse.query import parse
from pgtrickle.pipeline.parse.reader import Functions
from pgtrickle.pipeline.plan.measures import Measure
from pgtrickle.pipeline.plan.nodes import Aggregate, Plan, scans
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.explain import explain, sample_statements
from pgtrickle.pipeline.templates.monotone import obstacle
from pgtrickle.pipeline.templates.recursive import RecursionTemplate
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, RegionTemplate, Template, compile_plan
from pgtrickle.pipeline.templates.topk import TopKTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# Of a change statement when all sources have changed. TPC-H has up to 40,000; PostgreSQL takes seconds, and up to
# gigabytes, to analyse one of 400,000 (a query of 1,600 with subqueries in subqueries), however few the changes are.
MOST_CHARACTERS = 200_000


@dataclass(frozen=True, slots=True)
class Compiled:
    """A stream table that can be refreshed. `template` is None when it can only be recomputed (`reason` says why).

    `groups` is the state beside it, if it has one; `kept` too when that is the first rows of a LIMIT.
    """

    target: Target
    template: Template | None
    groups: Groups | None
    reason: Reason | None
    load_sql: str
    explanation: dict[str, Any]
    kept: TopK | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the author, under which statements are evaluated
    meant: dict[str, Any] | None = None  # what the text means, for the plan (define/operators.py)
    cycle: frozenset[int] = frozenset()  # of a table that reads itself through others: the relations of all of them
    copies: tuple[Copy, ...] = ()  # what the author's session needs to load it
    texts: StatementCache = field(default_factory=StatementCache, compare=False, repr=False)  # of change statements

    @property
    def relids(self) -> frozenset[int]:
        return self.template.relids if self.template is not None else frozenset()


def compile_table(conn: Connection, table: StreamTable, cycle: frozenset[int] = frozenset()) -> Compiled:
    """Raises NotDifferentiableError only when the table was declared DIFFERENTIAL or IMMEDIATE, or is in a cycle."""
    found = meaning.meant(conn, table)
    kept = table.session_settings
    formats = other_formats(kept)
    if formats and meaning.makes_texts(conn, table, found.query):
        return _formatted(conn, table, found, formats)
    compiled = _compiled(conn, meaning.as_meant(table, found), cycle, found.only_whole)
    return replace(compiled, settings=evaluated(kept), meant=meaning.kept(table, found))


def _formatted(
    conn: Connection, table: StreamTable, found: meaning.ResolvedQuery, formats: Mapping[str, str]
) -> Compiled:
    """A query that makes texts of values, in formats of its author that are not ours."""
    listed = ", ".join(f"{name} {value}" for name, value in sorted(formats.items()))
    reason = Reason.of(ReasonCode.AUTHOR_FORMATS, formats=listed)
    if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE"):
        raise NotDifferentiableError(reason, hint="use to_char() and the like, or define it with the usual formats")
    compiled = _full(conn, meaning.as_meant(table, found), reason, is_formatted=True)
    settings = {**evaluated(table.session_settings), **formats}
    return replace(compiled, settings=settings, meant=meaning.kept(table, found))


def _compiled(conn: Connection, table: StreamTable, cycle: frozenset[int], only_whole: Reason | None) -> Compiled:
    if cycle:
        return _cyclic(conn, table, cycle)
    try:
        if only_whole is not None:
            raise NotDifferentiableError(only_whole)
        template = _template(conn, table)
    except NotDifferentiableError as error:
        if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE"):
            raise
        return _full(conn, table, error.reason)
    target = _target(table, template)
    groups, kept = _groups(template, target), None
    if isinstance(template, TopKTemplate) and groups is not None:
        kept = TopK(groups, template.order("s", "k"), template.needed, template.wanted)
    explanation = _explained(conn, template)
    length = len(explanation["leaves"][0])
    if table.refresh_mode == "AUTO" and length > MOST_CHARACTERS:
        return _full(conn, table, Reason.of(ReasonCode.STATEMENT_TOO_LONG, length=length))
    if target.is_mirror:
        explanation["spark"] = "large loads, and net changes per row where they are many; identity is by the database"
    return Compiled(target, template, groups, None, template.load_statement(), explanation, kept)


def _explained(conn: Connection, template: Template) -> dict[str, Any]:
    """Tables of other databases by their own names: those of mirrors tell nobody anything."""
    explanation = explain(template)
    if any(scan.relation.schema == "pgtrickle_changes" for scan in scans(template.plan)):
        for mirror, origin in catalog.origin_names(conn, template.relids).items():
            told = f"Scan {origin} (mirrored here as {mirror}):"
            explanation["tree"] = [line.replace(f"Scan {mirror}:", told) for line in explanation["tree"]]
    return explanation


def _cyclic(conn: Connection, table: StreamTable, cycle: frozenset[int]) -> Compiled:
    """A member of a cycle: a bag, whatever the query, because the fixpoint is compared row by row."""
    found: Reason | None
    if table.runs_as_author:
        found = Reason.of(ReasonCode.AUTHOR_SESSION)
    elif table.refresh_mode not in ("AUTO", "FULL"):
        found = Reason.of(ReasonCode.MODE_IN_CYCLE, mode=table.refresh_mode)
    elif table.mode_reason is not None and table.effective_mode == "FULL":
        found = table.mode_reason
    else:
        plan = parse_table(conn, table, folded=False)
        found = obstacle(plan, lambda sql: [SqlType(*row) for row in catalog.describe(conn, sql)])
        found = found or _hidden(plan, cycle)
    if found is not None:
        raise NotDifferentiableError(
            Reason.of(ReasonCode.NO_FIXPOINT, table=table.full_name, why=found),
            hint="do it in a stream table outside of the cycle, which reads the cycle or is read by it",
        )
    assert not isinstance(plan, Aggregate)
    template = BagTemplate(plan, table.columns, frozenset(s.relation.relid for s in scans(plan)))
    explanation = _explained(conn, template)
    explanation["tree"] = ["Cycle: the least fixpoint of all its definitions, step by step", *explanation["tree"]]
    return Compiled(_target(table), template, None, None, template.load_statement(), explanation, cycle=cycle)


def _hidden(plan: Plan, cycle: frozenset[int]) -> Reason | None:
    for scan in scans(plan):
        names = {c.attnum: c.name for c in scan.relation.columns}
        for attnum, _ in scan.exposes:
            if scan.relation.relid in cycle and names[attnum].startswith("__pgt_"):
                return Reason.of(ReasonCode.HIDDEN_COLUMN, column=names[attnum], relation=scan.relation.name)
    return None


def prove_leaves(conn: Connection, table: StreamTable, compiled: Compiled) -> Compiled:
    """The same table after PostgreSQL has planned the statements that read buffers, which capture has made by now.

    One that it refuses means that the query was cut in the wrong place: FULL, or the error, as for any other obstacle.
    """
    template = compiled.template
    if template is None:
        return compiled
    statements = _statements(template, are_copied=table.runs_as_author)
    reason: Reason | None = None
    hint: str | None = None
    types = meaning.own_types(conn)
    try:
        with translated(), conn.transaction():
            QueryDescriber(conn, table).explain(list(dict.fromkeys(statements)), sorted(template.relids))
        if types:
            reason = meaning.compared_otherwise(conn, table, types, statements, sorted(template.relids))
    except DefinitionError as error:
        reason, hint = _refused(error, has_own_types=bool(types)), error.hint
    if reason is None:
        return compiled
    if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE") or compiled.cycle:
        raise NotDifferentiableError(reason, hint=hint)
    found = meaning.meant(conn, table)
    full = _full(conn, meaning.as_meant(table, found), reason)
    return replace(full, meant=compiled.meant, settings=compiled.settings)


def _statements(template: Template, *, are_copied: bool) -> list[str]:
    """One of each kind that reads changes or state. Many changes are read another way than few."""
    sampled = _without_storage(template)
    statements = [
        *sample_statements(sampled, are_copied=are_copied),
        *sample_statements(sampled, rows=1_000_000, are_copied=are_copied),
    ]
    if isinstance(template, FoldTemplate) and template.key_types:
        reread = template.reread_statement(may_be_null=True, whole=True)
        statements.append(reread.replace("%s::text[]", "NULL::text[]").replace("%%", "%"))
    if isinstance(template, FoldTemplate | TopKTemplate):
        statements.append(template.output_statement(f"(SELECT {_no_state(template)}) AS s"))
    return statements


def _without_storage(template: Template) -> Template:
    """The same over an empty relation: the table gets its new columns only when its load is ready."""
    if isinstance(template, TopKTemplate):
        return replace(template, state=f"(SELECT {_no_state(template)} WHERE false)")
    if not isinstance(template, RegionTemplate | RecursionTemplate):
        return template
    columns = [f"NULL::{c.type} AS {quote_ident(c.name)}" for c in template.columns]
    if isinstance(template, RecursionTemplate):
        columns.append("NULL::tid AS ctid")
    elif template.has_column:
        columns.append(f'NULL::text AS "{REGION}"')
    return replace(template, stored=f"(SELECT {', '.join(columns)} WHERE false) AS stored")


def _template(conn: Connection, table: StreamTable) -> Template:
    if table.refresh_mode == "FULL":
        raise NotDifferentiableError(Reason.of(ReasonCode.REFRESH_MODE_FULL))
    if table.effective_mode == "FULL" and table.mode_reason:
        raise NotDifferentiableError(table.mode_reason)
    if table.runs_as_author and with_copies(conn, table, table.query)[1]:
        raise NotDifferentiableError(Reason.of(ReasonCode.AUTHOR_COPIES, author=table.author))
    plan = parse_table(conn, table, folded=not table.runs_as_author)
    try:
        with translated(), conn.transaction():
            try:
                template = _compiled_plan(conn, table, plan)
            except NotDifferentiableError:
                if not isinstance(plan, Aggregate):
                    raise
                # Groups whose state cannot be kept are replaced as they stand in the table.
                template = _compiled_plan(conn, table, parse_table(conn, table, folded=False))
            _prove(conn, table, template)
    except DefinitionError as error:
        _still_valid(conn, table)
        reason = _refused(error, has_own_types=bool(meaning.own_types(conn)))
        raise NotDifferentiableError(reason, hint=error.hint) from error
    return template


def _refused(error: DefinitionError, *, has_own_types: bool) -> Reason:
    """Why statements of ours do not stand. `has_own_types`: the database has types without operators in pg_catalog."""
    if isinstance(error, NotDifferentiableError):
        return error.reason
    if has_own_types and error.sqlstate == NO_SUCH_FUNCTION:
        return Reason.of(ReasonCode.NO_OPERATOR)
    return Reason.of(ReasonCode.POSTGRESQL_REFUSES, message=error.message)


def _compiled_plan(conn: Connection, table: StreamTable, plan: Plan) -> Template:
    target, analyst = _target(table), QueryDescriber(conn, table)

    def describe(sql: str) -> list[SqlType]:
        # In a savepoint: part of a query that takes something from outside has no meaning by itself, and is asked for.
        with translated(), conn.transaction():
            return analyst.describe(sql)

    state = None if table.runs_as_author else target.state
    return compile_plan(plan, table.columns, describe, target.table, state)


def parse_table(conn: Connection, table: StreamTable, *, folded: bool = True) -> Plan:
    used = {s.relid: s.columns for s in table.sources}
    functions = Functions(*catalog.function_names(conn))
    known = {(r.schema, r.name): r for r in catalog.relations(conn, used)}
    if table.runs_as_author:  # what it does not name it reads only where its author may: keys, to find changes by
        hidden = unreadable(conn, table)
        used = {relid: columns - hidden.get(relid, frozenset()) for relid, columns in used.items()}

    def find(schema: str, name: str) -> Relation:
        # A name that is not among the sources is one that was renamed or made anew: then whatever has the name now.
        found = known.get((schema, name)) or catalog.find_relation(conn, schema, name)
        return meaning.view_explicit(conn, found, table) if found.kind == "v" else found

    return parse(table.query, find, used, functions, folded=folded)


def _still_valid(conn: Connection, table: StreamTable) -> None:
    """Raises when the query itself does not stand any more: then its text, not our cutting of it, is at fault."""
    QueryDescriber(conn, table).plan(table.query)


def _prove(conn: Connection, table: StreamTable, template: Template) -> None:
    """PostgreSQL plans the load and the visible rows, so that a text which does not fit is found now."""
    QueryDescriber(conn, table).plan(template.load_statement())
    if isinstance(template, FoldTemplate | TopKTemplate):
        catalog.plan(conn, template.output_statement(f"(SELECT {_no_state(template)}) AS s"))


def _no_state(template: FoldTemplate | TopKTemplate) -> str:
    """The columns of the state, as NULLs."""
    columns = [f"NULL::{t.declared} AS k{i}" for i, t in enumerate(_key_types(template))]
    columns += [f"NULL::{c.type} AS {c.name}" for c in _state_columns(template)]
    return ", ".join(["NULL::int8 AS gid", "NULL::int8 AS h", "NULL::text AS k", "NULL::int8 AS n", *columns])


def _full(conn: Connection, table: StreamTable, reason: Reason, *, is_formatted: bool = False) -> Compiled:
    """`is_formatted`: read under formats of its author that are not ours."""
    names = ", ".join(f"c{i}" for i in range(len(table.columns)))
    texts = [
        f"pgtrickle._in_our_format(q.c{i})" if is_formatted and c.typid not in UNFORMATTED else exact(f"q.c{i}", c.base)
        for i, c in enumerate(table.columns)
    ]
    row = encoded(texts)
    query, copies = with_copies(conn, table, table.query) if table.runs_as_author else (table.query, ())
    load = f"SELECT {row} FROM ({query}) AS q({names})"
    explanation = {"mode": "FULL", "reason": str(reason), "leaves": [load]}
    return Compiled(_target(table), None, None, reason, load, explanation, copies=copies)


def _target(table: StreamTable, template: Template | None = None) -> Target:
    columns = table.columns
    if isinstance(template, RegionTemplate) and template.has_column:
        columns = (*columns, REGION_COLUMN)
    lookups = template.lookups if isinstance(template, RecursionTemplate) else ()
    return Target(table.pgt_id, table.schema, table.name, columns, lookups, table.mirror is not None)


def _groups(template: Template, target: Target) -> Groups | None:
    if not isinstance(template, FoldTemplate | TopKTemplate):
        return None
    key_types = tuple(KeyType(t.declared, t.base) for t in _key_types(template))
    is_limited = isinstance(template, FoldTemplate) and template.plan.is_limited
    return Groups(target, key_types, tuple(_state_columns(template)), template.output_statement, is_limited)


def _key_types(template: FoldTemplate | TopKTemplate) -> tuple[SqlType, ...]:
    return template.key_types if isinstance(template, FoldTemplate) else template.types


def _state_columns(template: FoldTemplate | TopKTemplate) -> list[StateColumn]:
    if isinstance(template, TopKTemplate):
        return []
    return [
        StateColumn(m.name(suffix), type_, _fold(m, suffix), m.base)
        for m in template.measures.measures
        for suffix, type_ in m.state
    ]


def _fold(measure: Measure, suffix: str) -> str:
    if suffix in ("n", "s"):
        return "add"
    return measure.kind if measure.kind in ("least", "greatest") else "set"
