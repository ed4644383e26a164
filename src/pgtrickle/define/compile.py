"""Compiles stream tables. PASSES is the compiler on one screen: from PostgreSQL's text of a query to a template.

A pass takes a Compilation, which is what earlier passes have found, and returns it with what it has found itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pgtrickle.apply.groups import Groups
from pgtrickle.apply.target import Target
from pgtrickle.apply.topk import TopK
from pgtrickle.db import catalog
from pgtrickle.db.author import Copy
from pgtrickle.db.connect import translated
from pgtrickle.define import operators as meaning
from pgtrickle.define.author_query import QueryDescriber, unreadable, with_copies
from pgtrickle.define.storage import groups_of, null_state, target_of
from pgtrickle.errors import DefinitionError, NotDifferentiableError
from pgtrickle.model.catalog import Relation, StreamTable
from pgtrickle.model.session import evaluated, other_formats
from pgtrickle.pipeline.codec import UNFORMATTED, SqlType, encoded, exact
from pgtrickle.pipeline.parse.query import parse
from pgtrickle.pipeline.parse.reader import Functions
from pgtrickle.pipeline.plan.nodes import Aggregate, Plan, scans
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.canonical import canonical
from pgtrickle.pipeline.templates.explain import explain
from pgtrickle.pipeline.templates.monotone import obstacle
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, Template, template_of
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
    reason: str | None
    load_sql: str
    explanation: dict[str, Any]
    kept: TopK | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the author, under which statements are evaluated
    meant: dict[str, str | None] | None = None  # what the text means, for the plan (define/operators.py)
    cycle: frozenset[int] = frozenset()  # of a table that reads itself through others: the relations of all of them
    copies: tuple[Copy, ...] = ()  # what the author's session needs to load it
    texts: StatementCache = field(default_factory=StatementCache, compare=False, repr=False)  # of change statements

    @property
    def relids(self) -> frozenset[int]:
        return self.template.relids if self.template is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Compilation:
    """What is known of a table while it is compiled: each pass adds to it what it has found.

    `table` has the text with explicit operators after the first pass. `formats`: of the author's session, where the
    query makes texts of values in them. `only_whole`: why the text with explicit operators is FULL. `is_folded`: groups
    at the top keep their state in a table beside the stream table.
    """

    conn: Connection
    table: StreamTable
    cycle: frozenset[int] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    meant: dict[str, str | None] | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    only_whole: str | None = None
    is_folded: bool = True
    plan: Plan | None = None
    template: Template | None = None
    explanation: Mapping[str, Any] = field(default_factory=dict)

    def describe(self, sql: str) -> list[SqlType]:
        """The result types of a statement.

        In a savepoint: a part of a query that names columns of the query around it fails by itself, and is asked for.
        """
        with translated(), self.conn.transaction():
            return QueryDescriber(self.conn, self.table).describe(sql)


Pass = Callable[[Compilation], Compilation]


def compile_table(conn: Connection, table: StreamTable, cycle: frozenset[int] = frozenset()) -> Compiled:
    """Raises NotDifferentiableError only when the table was declared DIFFERENTIAL or IMMEDIATE, or is in a cycle."""
    state = Compilation(conn, table, cycle)
    remaining = CYCLE_PASSES if cycle else PASSES
    while remaining:
        try:
            state, remaining = remaining[0](state), remaining[1:]
        except NotDifferentiableError as error:
            if isinstance(state.plan, Aggregate) and state.template is None:
                # Groups whose state cannot be kept beside the table are replaced in the table.
                state, remaining = replace(state, is_folded=False, plan=None), PASSES[PASSES.index(parse_query) :]
            elif state.table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE") or (cycle and not state.formats):
                raise
            else:
                full = full_refresh(conn, state.table, error.message, is_formatted=bool(state.formats))
                return replace(full, settings=state.settings, meant=state.meant)
    return _compiled(state)


# -- passes
# --------------------------------------------------------------------------------------------------------------


def resolve_operators(state: Compilation) -> Compilation:
    """Rewrites the text so that it names the operators that PostgreSQL found in the author's session."""
    conn, table = state.conn, state.table
    found = meaning.meant(conn, table)
    kept = table.session_settings
    formats = other_formats(kept)
    if formats and not meaning.makes_texts(conn, table, found.query):
        formats = {}
    return replace(
        state,
        table=meaning.as_meant(table, found),
        settings={**evaluated(kept), **formats},
        meant=meaning.kept(table, found),
        formats=formats,
        only_whole=found.only_whole,
        is_folded=not table.runs_as_author and not state.cycle,
    )


def check_formats(state: Compilation) -> Compilation:
    """Refuses a query that makes texts of values, in formats of its author that are not ours."""
    if state.formats:
        listed = ", ".join(f"{name} {value}" for name, value in sorted(state.formats.items()))
        reason = f"the query makes texts of values, and its author's session had {listed}"
        raise NotDifferentiableError(reason, hint="use to_char() and the like, or define it with the usual formats")
    return state


def check_mode(state: Compilation) -> Compilation:
    """Refuses a table that is FULL by its declaration, by its catalog entry or by its author's session."""
    table = state.table
    if state.only_whole is not None:
        raise NotDifferentiableError(state.only_whole)
    if table.refresh_mode == "FULL":
        raise NotDifferentiableError("refresh_mode is FULL")
    if table.effective_mode == "FULL" and table.mode_reason:
        raise NotDifferentiableError(table.mode_reason)
    if table.runs_as_author and with_copies(state.conn, table, table.query)[1]:
        raise NotDifferentiableError(
            f"its query is evaluated as {table.author}, for whom tables of other databases are copied each time"
        )
    return state


def parse_query(state: Compilation) -> Compilation:
    """Splits the text into tokens and reads it into a plan, with views and WITH items expanded."""
    return replace(state, plan=parse_table(state.conn, state.table, folded=state.is_folded))


def canonicalise(state: Compilation) -> Compilation:
    """Writes equal values in one way below DISTINCT and set operations, or refuses their type."""
    assert state.plan is not None
    with _refusals(state):
        return replace(state, plan=canonical(state.plan, state.describe))


def choose_template(state: Compilation) -> Compilation:
    """Chooses how the result is stored and maintained: bag, groups with state, regions, top-k or recursion."""
    assert state.plan is not None
    target = target_of(state.table)
    beside = None if state.table.runs_as_author else target.state
    with _refusals(state):
        template = template_of(state.plan, state.table.columns, state.describe, target.table, beside)
    return replace(state, template=template)


def prove_load(state: Compilation) -> Compilation:
    """Has PostgreSQL plan the load and the visible rows, so that a statement that it refuses is found now."""
    template = state.template
    assert template is not None
    with _refusals(state):
        QueryDescriber(state.conn, state.table).plan(template.load_statement())
        if isinstance(template, FoldTemplate | TopKTemplate):
            catalog.plan(state.conn, template.output_statement(f"(SELECT {null_state(template)}) AS s"))
    return state


def explain_template(state: Compilation) -> Compilation:
    """Describes the template for people; refuses one whose delta statement is too long for AUTO."""
    assert state.template is not None
    explanation = _explained(state.conn, state.template)
    length = len(explanation["leaves"][0])
    if state.table.refresh_mode == "AUTO" and length > MOST_CHARACTERS:
        reason = f"its changes take a statement of {length:,} characters, which PostgreSQL would analyse for seconds"
        raise NotDifferentiableError(f"{reason} (refresh_mode DIFFERENTIAL takes it nevertheless)")
    if state.table.mirror is not None:
        explanation["spark"] = "large loads, and net changes per row where they are many; identity is by the database"
    return replace(state, explanation=explanation)


def check_cycle(state: Compilation) -> Compilation:
    """Refuses a member of a cycle whose mode or session does not let the fixpoint be computed."""
    table = state.table
    if table.runs_as_author:
        found = "its query is evaluated by a session of its author, which does not see what the steps have written"
    elif table.refresh_mode not in ("AUTO", "FULL"):
        found = f"its refresh_mode is {table.refresh_mode}"
    elif table.mode_reason is not None and table.effective_mode == "FULL":
        found = table.mode_reason
    else:
        return state
    raise _no_fixpoint(table, found)


def check_monotone(state: Compilation) -> Compilation:
    """Refuses a member of a cycle whose query is not monotone: the cycle would have no least fixpoint."""
    assert state.plan is not None
    found = obstacle(state.plan, lambda sql: [SqlType(*row) for row in catalog.describe(state.conn, sql)])
    found = f"its query uses {found}" if found is not None else _hidden(state.plan, state.cycle)
    if found is not None:
        raise _no_fixpoint(state.table, found)
    return state


def choose_bag(state: Compilation) -> Compilation:
    """Stores a member of a cycle as a bag, whatever its query, because the fixpoint is compared row by row."""
    plan = state.plan
    assert plan is not None
    assert not isinstance(plan, Aggregate)
    relids = frozenset(s.relation.relid for s in scans(plan))
    return replace(state, template=BagTemplate(plan, state.table.columns, relids))


def explain_cycle(state: Compilation) -> Compilation:
    """Describes a member of a cycle for people."""
    assert state.template is not None
    explanation = _explained(state.conn, state.template)
    explanation["tree"] = ["Cycle: the least fixpoint of all its definitions, step by step", *explanation["tree"]]
    return replace(state, explanation=explanation)


# The compiler, from PostgreSQL's text to a template. A pass that raises NotDifferentiableError makes the table FULL.
PASSES: tuple[Pass, ...] = (
    resolve_operators,  # text -> text with explicit operators (define/operators.py, pipeline/text)
    check_formats,  # refuses texts of values in the author's formats
    check_mode,  # refuses what is declared FULL
    parse_query,  # text -> plan (pipeline/parse, pipeline/plan)
    canonicalise,  # plan -> plan with one text for equal values (pipeline/templates/canonical.py)
    choose_template,  # plan -> template (pipeline/templates), which has the delta rules (pipeline/differentiate)
    prove_load,  # PostgreSQL plans the template's statements
    explain_template,  # template -> words
)
# The same for a stream table that reads itself through others.
CYCLE_PASSES: tuple[Pass, ...] = (
    resolve_operators,
    check_formats,
    check_cycle,  # refuses modes and sessions that cannot take part in a fixpoint
    parse_query,
    check_monotone,  # refuses queries without a least fixpoint (pipeline/templates/monotone.py)
    choose_bag,
    explain_cycle,
)


# -- what passes share
# --------------------------------------------------------------------------------------------------------------


@contextmanager
def _refusals(state: Compilation) -> Iterator[None]:
    """A statement of ours that PostgreSQL refuses makes the table FULL, unless PostgreSQL refuses the query itself."""
    try:
        with translated(), state.conn.transaction():
            yield
    except DefinitionError as error:
        QueryDescriber(state.conn, state.table).plan(state.table.query)
        is_operator = "[42883]" in error.message and bool(meaning.own_types(state.conn))
        raise NotDifferentiableError(meaning.NO_OPERATOR if is_operator else error.message, hint=error.hint) from error


def _compiled(state: Compilation) -> Compiled:
    template = state.template
    assert template is not None
    target = target_of(state.table, template)
    groups, kept = groups_of(template, target), None
    if isinstance(template, TopKTemplate) and groups is not None:
        kept = TopK(groups, template.order("s", "k"), template.needed, template.wanted)
    return Compiled(
        target,
        template,
        groups,
        None,
        template.load_statement(),
        dict(state.explanation),
        kept,
        settings=state.settings,
        meant=state.meant,
        cycle=state.cycle,
    )


def _explained(conn: Connection, template: Template) -> dict[str, Any]:
    """Tables of other databases by their own names: those of mirrors tell nobody anything."""
    explanation = explain(template)
    if any("Scan pgtrickle_changes." in line for line in explanation["tree"]):
        for mirror, origin in catalog.origin_names(conn, template.relids).items():
            told = f"Scan {origin} (mirrored here as {mirror}):"
            explanation["tree"] = [line.replace(f"Scan {mirror}:", told) for line in explanation["tree"]]
    return explanation


def _no_fixpoint(table: StreamTable, found: str) -> NotDifferentiableError:
    return NotDifferentiableError(
        f"{table.full_name} reads itself through other stream tables, and {found}: that has no least fixpoint, "
        "or none that can be found step by step",
        hint="do it in a stream table outside of the cycle, which reads the cycle or is read by it",
    )


def _hidden(plan: Plan, cycle: frozenset[int]) -> str | None:
    for scan in scans(plan):
        names = {c.attnum: c.name for c in scan.relation.columns}
        for attnum, _ in scan.exposes:
            if scan.relation.relid in cycle and names[attnum].startswith("__pgt_"):
                return f"its query reads the hidden column {names[attnum]} of {scan.relation.name}"
    return None


def parse_table(conn: Connection, table: StreamTable, *, folded: bool = True) -> Plan:
    """The plan of a table's query. `folded`: groups at the top become an Aggregate."""
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


def full_refresh(conn: Connection, table: StreamTable, reason: str, *, is_formatted: bool = False) -> Compiled:
    """A table whose query is evaluated whole. `is_formatted`: under formats of its author that are not ours."""
    names = ", ".join(f"c{i}" for i in range(len(table.columns)))
    texts = [
        f"pgtrickle._in_our_format(q.c{i})" if is_formatted and c.typid not in UNFORMATTED else exact(f"q.c{i}", c.base)
        for i, c in enumerate(table.columns)
    ]
    row = encoded(texts)
    query, copies = with_copies(conn, table, table.query) if table.runs_as_author else (table.query, ())
    load = f"SELECT {row} FROM ({query}) AS q({names})"
    explanation = {"mode": "FULL", "reason": reason, "leaves": [load]}
    return Compiled(target_of(table), None, None, reason, load, explanation, copies=copies)
