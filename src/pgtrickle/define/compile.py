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
from pgtrickle.errors import DefinitionError, NotDifferentiableError
from pgtrickle.model.catalog import REGION, REGION_COLUMN, Relation, StreamTable
from pgtrickle.model.identifiers import quote_ident
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
from pgtrickle.pipeline.templates.stages import LoadStage, ReadStage, RefreshStages, refresh_stages
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, RegionTemplate, Template, compile_plan
from pgtrickle.pipeline.templates.topk import TopKTemplate

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# Of a change statement when all sources have changed. TPC-H has up to 40,000; PostgreSQL takes seconds, and up to
# gigabytes, to analyse one of 400,000 (a query of 1,600 with subqueries in subqueries), however few the changes are.
MOST_CHARACTERS = 200_000


@dataclass(frozen=True, slots=True)
class Compiled:
    """A stream table that can be refreshed. Without `stages.changes` it can only be recomputed (`reason` says why).

    `groups` is the state beside it, if it has one; `kept` too when that is the first rows of a LIMIT. `explanation`
    is the stages in words.
    """

    target: Target
    stages: RefreshStages
    groups: Groups | None
    reason: str | None
    explanation: dict[str, Any]
    kept: TopK | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the author, under which statements are evaluated
    meant: dict[str, str | None] | None = None  # what the text means, for the plan (define/operators.py)
    cycle: frozenset[int] = frozenset()  # of a table that reads itself through others: the relations of all of them
    copies: tuple[Copy, ...] = ()  # what the author's session needs to load it
    texts: StatementCache = field(default_factory=StatementCache, compare=False, repr=False)  # of change statements

    @property
    def template(self) -> Template | None:
        return self.stages.changes.read.template if self.stages.changes is not None else None

    @property
    def load_sql(self) -> str:
        return self.stages.load.statement

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
    reason = f"the query makes texts of values, and its author's session had {listed}"
    if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE"):
        raise NotDifferentiableError(reason, hint="use to_char() and the like, or define it with the usual formats")
    compiled = _full(conn, meaning.as_meant(table, found), reason, is_formatted=True)
    settings = {**evaluated(table.session_settings), **formats}
    return replace(compiled, settings=settings, meant=meaning.kept(table, found))


def _compiled(conn: Connection, table: StreamTable, cycle: frozenset[int], only_whole: str | None) -> Compiled:
    if cycle:
        return _cyclic(conn, table, cycle)
    try:
        if only_whole is not None:
            raise NotDifferentiableError(only_whole)
        template = _template(conn, table)
    except NotDifferentiableError as error:
        if table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE"):
            raise
        return _full(conn, table, error.message)
    target = _target(table, template)
    groups, kept = _groups(template, target), None
    if isinstance(template, TopKTemplate) and groups is not None:
        kept = TopK(groups, template.order("s", "k"), template.needed, template.wanted)
    stages = refresh_stages(template, is_mirror=target.is_mirror)
    explanation = _explained(conn, stages)
    length = len(explanation["leaves"][0])
    if table.refresh_mode == "AUTO" and length > MOST_CHARACTERS:
        reason = f"its changes take a statement of {length:,} characters, which PostgreSQL would analyse for seconds"
        return _full(conn, table, f"{reason} (refresh_mode DIFFERENTIAL takes it nevertheless)")
    return Compiled(target, stages, groups, None, explanation, kept)


def _explained(conn: Connection, stages: RefreshStages) -> dict[str, Any]:
    """Tables of other databases by their own names: those of mirrors tell nobody anything."""
    explanation = explain(stages)
    if stages.changes is not None and any("Scan pgtrickle_changes." in line for line in explanation["tree"]):
        for mirror, origin in catalog.origin_names(conn, stages.changes.read.relids).items():
            told = f"Scan {origin} (mirrored here as {mirror}):"
            explanation["tree"] = [line.replace(f"Scan {mirror}:", told) for line in explanation["tree"]]
    return explanation


def _cyclic(conn: Connection, table: StreamTable, cycle: frozenset[int]) -> Compiled:
    """A member of a cycle: a bag, whatever the query, because the fixpoint is compared row by row."""
    found: str | None
    if table.runs_as_author:
        found = "its query is evaluated by a session of its author, which does not see what the steps have written"
    elif table.refresh_mode not in ("AUTO", "FULL"):
        found = f"its refresh_mode is {table.refresh_mode}"
    elif table.mode_reason is not None and table.effective_mode == "FULL":
        found = table.mode_reason
    else:
        plan = parse_table(conn, table, folded=False)
        found = obstacle(plan, lambda sql: [SqlType(*row) for row in catalog.describe(conn, sql)])
        found = f"its query uses {found}" if found is not None else _hidden(plan, cycle)
    if found is not None:
        raise NotDifferentiableError(
            f"{table.full_name} reads itself through other stream tables, and {found}: that has no least fixpoint, "
            "or none that can be found step by step",
            hint="do it in a stream table outside of the cycle, which reads the cycle or is read by it",
        )
    assert not isinstance(plan, Aggregate)
    template = BagTemplate(plan, table.columns, frozenset(s.relation.relid for s in scans(plan)))
    stages = refresh_stages(template)
    explanation = _explained(conn, stages)
    explanation["tree"] = ["Cycle: the least fixpoint of all its definitions, step by step", *explanation["tree"]]
    return Compiled(_target(table), stages, None, None, explanation, cycle=cycle)


def _hidden(plan: Plan, cycle: frozenset[int]) -> str | None:
    for scan in scans(plan):
        names = {c.attnum: c.name for c in scan.relation.columns}
        for attnum, _ in scan.exposes:
            if scan.relation.relid in cycle and names[attnum].startswith("__pgt_"):
                return f"its query reads the hidden column {names[attnum]} of {scan.relation.name}"
    return None


def prove_leaves(conn: Connection, table: StreamTable, compiled: Compiled) -> Compiled:
    """The same table after PostgreSQL has planned the statements that read buffers, which capture has made by now.

    One that it refuses means that the query was cut in the wrong place: FULL, or the error, as for any other obstacle.
    """
    template = compiled.template
    if template is None:
        return compiled
    statements = _statements(template, are_copied=table.runs_as_author)
    reason, hint = None, None
    types = meaning.own_types(conn)
    try:
        with translated(), conn.transaction():
            QueryDescriber(conn, table).explain(list(dict.fromkeys(statements)), sorted(template.relids))
        if types:
            reason = meaning.compared_otherwise(conn, table, types, statements, sorted(template.relids))
    except DefinitionError as error:
        reason, hint = error.message, error.hint
        if types and "[42883]" in reason:  # no such operator
            reason = meaning.NO_OPERATOR
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
        *sample_statements(ReadStage(sampled), are_copied=are_copied),
        *sample_statements(ReadStage(sampled), rows=1_000_000, are_copied=are_copied),
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
        raise NotDifferentiableError("refresh_mode is FULL")
    if table.effective_mode == "FULL" and table.mode_reason:
        raise NotDifferentiableError(table.mode_reason)
    if table.runs_as_author and with_copies(conn, table, table.query)[1]:
        raise NotDifferentiableError(
            f"its query is evaluated as {table.author}, for whom tables of other databases are copied each time"
        )
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
        is_operator = "[42883]" in error.message and bool(meaning.own_types(conn))
        raise NotDifferentiableError(meaning.NO_OPERATOR if is_operator else error.message, hint=error.hint) from error
    return template


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


def _full(conn: Connection, table: StreamTable, reason: str, *, is_formatted: bool = False) -> Compiled:
    """`is_formatted`: read under formats of its author that are not ours."""
    names = ", ".join(f"c{i}" for i in range(len(table.columns)))
    texts = [
        f"pgtrickle._in_our_format(q.c{i})" if is_formatted and c.typid not in UNFORMATTED else exact(f"q.c{i}", c.base)
        for i, c in enumerate(table.columns)
    ]
    row = encoded(texts)
    query, copies = with_copies(conn, table, table.query) if table.runs_as_author else (table.query, ())
    load = f"SELECT {row} FROM ({query}) AS q({names})"
    stages = RefreshStages(LoadStage(load))
    explanation = {**explain(stages), "reason": reason}
    return Compiled(_target(table), stages, None, reason, explanation, copies=copies)


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
