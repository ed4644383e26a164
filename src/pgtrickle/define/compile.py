"""Compiles stream tables. PASSES is the compiler on one screen: from PostgreSQL's text of a query to a template.

A pass takes a Compilation, the results of earlier passes, and returns it with its own result added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pgtrickle.apply.groups import Groups
from pgtrickle.apply.target import Target
from pgtrickle.apply.topk import TopK
from pgtrickle.db import catalog
from pgtrickle.db.author import Copy
from pgtrickle.db.connect import translated
from pgtrickle.define import operators as meaning
from pgtrickle.define.author_query import QueryDescriber, unreadable, with_copies
from pgtrickle.define.storage import groups_of, null_state, on_storage, target_of
from pgtrickle.errors import DefinitionError
from pgtrickle.model.catalog import ObjectId, Relation, StreamTable
from pgtrickle.model.reasons import NotDifferentiableError, Reason, ReasonCode
from pgtrickle.model.session import evaluated, other_formats
from pgtrickle.pipeline.codec import UNFORMATTED, SqlType, encoded, exact
from pgtrickle.pipeline.parse.query import parse
from pgtrickle.pipeline.parse.reader import Functions
from pgtrickle.pipeline.plan.nodes import Aggregate, Plan, join_count, scans
from pgtrickle.pipeline.render.statement_cache import StatementCache
from pgtrickle.pipeline.templates.canonical import canonical
from pgtrickle.pipeline.templates.equal_values import check_equal_values
from pgtrickle.pipeline.templates.explain import explain
from pgtrickle.pipeline.templates.load_query import rows_query
from pgtrickle.pipeline.templates.monotone import obstacle
from pgtrickle.pipeline.templates.stages import LoadStage, RefreshStages, refresh_stages
from pgtrickle.pipeline.templates.template import BagTemplate, FoldTemplate, Template, template_of
from pgtrickle.pipeline.templates.topk import TopKTemplate
from pgtrickle.pipeline.text.using_alias import with_named_rows

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

# Length of a delta statement if all sources have changed. TPC-H has up to 40,000; PostgreSQL needs seconds and up to
# gigabytes to parse one of 400,000 (a query of 1,600 with nested subqueries), however few the changes are.
MOST_CHARACTERS = 200_000
T = TypeVar("T")


class Once:
    """A value that is computed at its first use."""

    __slots__ = ("_value",)

    def __init__(self) -> None:
        self._value: Any = None

    def get(self, compute: Callable[[], T]) -> T:
        if self._value is None:
            self._value = compute()
        return cast("T", self._value)

    def known(self) -> Any:
        """None: it was not computed yet."""
        return self._value


@dataclass(frozen=True, slots=True)
class Compiled:
    """A stream table that can be refreshed. Without `stages.changes` it can only be recomputed (`reason` says why).

    `groups`: its state table, if it has one; `topk`: the same if that stores the first rows of a LIMIT. `explanation`
    describes the stages for people.
    """

    target: Target
    stages: RefreshStages
    groups: Groups | None
    reason: Reason | None
    explanation: dict[str, Any]
    topk: TopK | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # of the author, under which statements are evaluated
    meant: dict[str, Any] | None = None  # the resolved text, for the plan (define/operators.py)
    cycle: frozenset[int] = frozenset()  # of a table that reads itself through others: the relations of all of them
    copies: tuple[Copy, ...] = ()  # copies that the author's session needs to load it
    knows_sources: bool = field(default=True, compare=False)  # it names no other relations than its sources
    texts: StatementCache = field(default_factory=StatementCache, compare=False, repr=False)  # of change statements
    on_spark: Once = field(default_factory=Once, compare=False, repr=False)  # its load, compiled at the first use
    template: Template | None = field(init=False, compare=False, repr=False)  # that of stages.changes

    def __post_init__(self) -> None:
        changes = self.stages.changes
        object.__setattr__(self, "template", changes.read.template if changes is not None else None)

    @property
    def load_sql(self) -> str:
        return self.stages.load.statement

    @property
    def relids(self) -> frozenset[int]:
        return self.template.relids if self.template is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Compilation:
    """The state of a compilation: each pass adds its result.

    `table` has the text with explicit operators after the first pass. `formats`: of the author's session, where the
    query converts values to text. `only_whole`: why the text with explicit operators is FULL. `is_folded`: groups at
    the top have a state table.
    """

    conn: Connection
    table: StreamTable
    cycle: frozenset[int] = frozenset()
    settings: Mapping[str, str] = field(default_factory=dict)
    meant: dict[str, Any] | None = None
    formats: Mapping[str, str] = field(default_factory=dict)
    only_whole: Reason | None = None
    is_folded: bool = True
    plan: Plan | None = None
    template: Template | None = None
    explanation: Mapping[str, Any] = field(default_factory=dict)
    is_portable: bool = False  # numbers of relations are ObjectIds
    strangers: list[str] = field(default_factory=list)  # relations that the text names and that are not its sources

    def describe(self, sql: str) -> list[SqlType]:
        """The result types of a statement.

        In a savepoint: a subquery that names columns of an outer query fails by itself.
        """
        with translated(), self.conn.transaction():
            return QueryDescriber(self.conn, self.table).describe(sql)


Pass = Callable[[Compilation], Compilation]


def compile_table(
    conn: Connection, table: StreamTable, cycle: frozenset[int] = frozenset(), *, portable: bool = False
) -> Compiled:
    """Raises NotDifferentiableError only when the table was declared DIFFERENTIAL or IMMEDIATE, or is in a cycle.

    `portable`: for a store of templates that other databases use (define/template_store.py).
    """
    state = Compilation(conn, table, cycle, is_portable=portable)
    remaining = CYCLE_PASSES if cycle else PASSES
    while remaining:
        try:
            state, remaining = remaining[0](state), remaining[1:]
        except NotDifferentiableError as error:
            if isinstance(state.plan, Aggregate) and state.template is None:
                # Groups that cannot have a state table are replaced in the stream table.
                state, remaining = replace(state, is_folded=False, plan=None), PASSES[PASSES.index(parse_query) :]
            elif state.table.refresh_mode in ("DIFFERENTIAL", "IMMEDIATE") or (cycle and not state.formats):
                raise
            else:
                full = full_refresh(
                    conn, state.table, error.reason, is_formatted=bool(state.formats), portable=portable
                )
                return replace(full, settings=state.settings, meant=state.meant, knows_sources=not state.strangers)
    return _compiled(state)


# -- passes
# --------------------------------------------------------------------------------------------------------------


def resolve_operators(state: Compilation) -> Compilation:
    """Rewrites the text so that it names the operators that PostgreSQL found in the author's session."""
    conn, table = state.conn, state.table
    resolved = meaning.meant(conn, table)
    settings = table.session_settings
    formats = other_formats(settings)
    if formats and not meaning.makes_texts(conn, table, resolved.query):
        formats = {}
    return replace(
        state,
        table=meaning.as_meant(table, resolved),
        settings={**evaluated(settings), **formats},
        meant=meaning.kept(table, resolved),
        formats=formats,
        only_whole=resolved.only_whole,
        is_folded=not table.runs_as_author and not state.cycle,
    )


def check_formats(state: Compilation) -> Compilation:
    """Refuses a query that converts values to text in formats of its author that differ from ours."""
    if state.formats:
        listed = ", ".join(f"{name} {value}" for name, value in sorted(state.formats.items()))
        raise NotDifferentiableError(Reason.of(ReasonCode.AUTHOR_FORMATS, formats=listed))
    return state


def check_mode(state: Compilation) -> Compilation:
    """Refuses a table that is FULL by its declaration, by its catalog entry or by its author's session."""
    table = state.table
    if state.only_whole is not None:
        raise NotDifferentiableError(state.only_whole)
    if table.refresh_mode == "FULL":
        raise NotDifferentiableError(Reason.of(ReasonCode.REFRESH_MODE_FULL))
    is_found_again = table.mode_reason is not None and table.mode_reason.code is ReasonCode.MAX_DIFFERENTIAL_JOINS
    if table.effective_mode == "FULL" and table.mode_reason and not is_found_again:
        raise NotDifferentiableError(table.mode_reason)
    if table.runs_as_author and with_copies(state.conn, table, table.query)[1]:
        raise NotDifferentiableError(Reason.of(ReasonCode.AUTHOR_COPIES, author=table.author))
    return state


def parse_query(state: Compilation) -> Compilation:
    """Parses the text into a plan, with views and CTEs expanded."""
    number = ObjectId if state.is_portable else int
    plan = parse_table(state.conn, state.table, folded=state.is_folded, number=number, strangers=state.strangers)
    return replace(state, plan=plan)


def check_joins(state: Compilation) -> Compilation:
    """Refuses a query with more joins than its option max_differential_joins permits."""
    assert state.plan is not None
    limit = state.table.max_differential_joins
    if limit is not None and (number := join_count(state.plan)) > limit:
        raise NotDifferentiableError(Reason.of(ReasonCode.MAX_DIFFERENTIAL_JOINS, joins=number, limit=limit))
    return state


def check_equal(state: Compilation) -> Compilation:
    """Refuses expressions that tell equal values apart where PostgreSQL returns any of several ones."""
    assert state.plan is not None
    with _refusals(state):
        check_equal_values(state.plan, state.describe)
    return state


def canonicalise(state: Compilation) -> Compilation:
    """Writes equal values in one way below DISTINCT and set operations, or refuses their type."""
    assert state.plan is not None
    with _refusals(state):
        return replace(state, plan=canonical(state.plan, state.describe))


def choose_template(state: Compilation) -> Compilation:
    """Chooses how the result is stored and maintained: bag, groups with state, regions, top-k or recursion."""
    assert state.plan is not None
    target = target_of(state.conn, state.table, portable=state.is_portable)
    beside = None if state.table.runs_as_author else target.state
    with _refusals(state):
        template = template_of(state.plan, state.table.columns, state.describe, target.table, beside)
    return replace(state, template=on_storage(template, target))


def prove_load(state: Compilation) -> Compilation:
    """Has PostgreSQL plan the load and the visible rows, so that a refused statement is detected now."""
    template = state.template
    assert template is not None
    with _refusals(state):
        QueryDescriber(state.conn, state.table).plan(template.load_query().sql)
        if isinstance(template, FoldTemplate | TopKTemplate):
            catalog.plan(state.conn, template.output_statement(f"(SELECT {null_state(template)}) AS s"))
    return state


def explain_template(state: Compilation) -> Compilation:
    """Describes the template for people; refuses one whose delta statement is too long for AUTO."""
    assert state.template is not None
    explanation = _explained(state.conn, refresh_stages(state.template, is_mirror=state.table.mirror is not None))
    length = len(explanation["leaves"][0])
    if state.table.refresh_mode == "AUTO" and length > MOST_CHARACTERS:
        raise NotDifferentiableError(Reason.of(ReasonCode.STATEMENT_TOO_LONG, length=length))
    return replace(state, explanation=explanation)


def check_cycle(state: Compilation) -> Compilation:
    """Refuses a member of a cycle whose mode or session prevents the computation of the fixpoint."""
    table = state.table
    if table.runs_as_author:
        reason = Reason.of(ReasonCode.AUTHOR_SESSION)
    elif table.refresh_mode not in ("AUTO", "FULL"):
        reason = Reason.of(ReasonCode.MODE_IN_CYCLE, mode=table.refresh_mode)
    elif table.mode_reason is not None and table.effective_mode == "FULL":
        reason = table.mode_reason
    else:
        return state
    raise _no_fixpoint(table, reason)


def check_monotone(state: Compilation) -> Compilation:
    """Refuses a member of a cycle whose query is not monotone: the cycle would have no least fixpoint."""
    assert state.plan is not None
    reason = obstacle(state.plan, lambda sql: [SqlType(*row) for row in catalog.describe(state.conn, sql)])
    reason = reason or _hidden(state.plan, state.cycle)
    if reason is not None:
        raise _no_fixpoint(state.table, reason)
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
    explanation = _explained(state.conn, refresh_stages(state.template))
    explanation["tree"] = ["Cycle: the least fixpoint of all its definitions, step by step", *explanation["tree"]]
    return replace(state, explanation=explanation)


# The compiler, from PostgreSQL's text to a template. A pass that raises NotDifferentiableError makes the table FULL.
PASSES: tuple[Pass, ...] = (
    resolve_operators,  # text -> text with explicit operators (define/operators.py, pipeline/text)
    check_formats,  # refuses texts of values in the author's formats
    check_mode,  # refuses what is declared FULL
    parse_query,  # text -> plan (pipeline/parse, pipeline/plan)
    check_joins,  # refuses more joins than the table's option permits
    check_equal,  # refuses expressions that tell equal values apart (pipeline/templates/equal_values.py)
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
        reason = meaning.refused(error, has_own_types=bool(meaning.own_types(state.conn)))
        raise NotDifferentiableError(reason, hint=error.hint) from error


def _compiled(state: Compilation) -> Compiled:
    template = state.template
    assert template is not None
    target = target_of(state.conn, state.table, template, portable=state.is_portable)
    groups, topk = groups_of(template, target), None
    if isinstance(template, TopKTemplate) and groups is not None:
        topk = TopK(groups, template.order("s", "k"), template.needed, template.stored_rows)
    return Compiled(
        target,
        refresh_stages(template, is_mirror=target.is_mirror),
        groups,
        None,
        dict(state.explanation),
        topk,
        settings=state.settings,
        meant=state.meant,
        cycle=state.cycle,
        knows_sources=not state.strangers,
    )


def _explained(conn: Connection, stages: RefreshStages) -> dict[str, Any]:
    """Replaces the names of mirrors by those of the tables at their origins."""
    explanation = explain(stages)
    changes = stages.changes
    if changes is not None and any(s.relation.schema == "pgtrickle_changes" for s in scans(changes.read.template.plan)):
        for mirror, origin, is_stored in catalog.origin_names(conn, changes.read.template.relids):
            told = f"Scan {origin} ({f'mirrored here as {mirror}' if is_stored else 'read from its replica'}):"
            explanation["tree"] = [line.replace(f"Scan {mirror}:", told) for line in explanation["tree"]]
    return explanation


def _no_fixpoint(table: StreamTable, why: Reason) -> NotDifferentiableError:
    return NotDifferentiableError(Reason.of(ReasonCode.NO_FIXPOINT, table=table.full_name, why=why))


def _hidden(plan: Plan, cycle: frozenset[int]) -> Reason | None:
    for scan in scans(plan):
        names = {c.attnum: c.name for c in scan.relation.columns}
        for attnum, _ in scan.exposes:
            if scan.relation.relid in cycle and names[attnum].startswith("__pgt_"):
                return Reason.of(ReasonCode.HIDDEN_COLUMN, column=names[attnum], relation=scan.relation.name)
    return None


def parse_table(
    conn: Connection,
    table: StreamTable,
    *,
    folded: bool = True,
    number: Callable[[int], int] = int,
    strangers: list[str] | None = None,
) -> Plan:
    """The plan of a table's query. `folded`: groups at the top become an Aggregate. `number`: for oids of relations.
    `strangers` gets the names of relations that are not its sources."""
    used = {s.relid: s.columns for s in table.sources}
    functions = Functions(*catalog.function_names(conn))
    known = {(r.schema, r.name): replace(r, relid=number(r.relid)) for r in catalog.relations(conn, used)}
    if table.runs_as_author:  # keys that it does not name are read only if its author may
        hidden = unreadable(conn, table)
        used = {relid: columns - hidden.get(relid, frozenset()) for relid, columns in used.items()}
        _refuse_virtual(known.values(), used)

    def find(schema: str, name: str) -> Relation:
        # A name that is not among the sources was renamed or created again: then the current relation of that name.
        relation = known.get((schema, name))
        if relation is None:
            relation = catalog.find_relation(conn, schema, name)
            if strangers is not None:
                strangers.append(f"{schema}.{name}")
        return meaning.view_explicit(conn, relation, table) if relation.kind == "v" else relation

    return parse(table.query, find, used, functions, folded=folded)


def _refuse_virtual(relations: Iterable[Relation], used: Mapping[int, frozenset[int]]) -> None:
    """The author may read a virtual column and not the columns that it is computed from."""
    for relation in relations:
        for column in relation.columns:
            if column.virtual is not None and column.attnum in used.get(relation.relid, frozenset()):
                name = f"{relation.schema}.{relation.name}"
                raise NotDifferentiableError(Reason.of(ReasonCode.VIRTUAL_COLUMN, column=column.name, relation=name))


def full_refresh(
    conn: Connection, table: StreamTable, reason: Reason, *, is_formatted: bool = False, portable: bool = False
) -> Compiled:
    """A table in mode FULL. `is_formatted`: with formats of its author that differ from ours."""
    names = ", ".join(f"c{i}" for i in range(len(table.columns)))
    texts = [
        f"pgtrickle._in_our_format(q.c{i})" if is_formatted and c.typid not in UNFORMATTED else exact(f"q.c{i}", c.base)
        for i, c in enumerate(table.columns)
    ]
    row = encoded(texts)
    query, copies = with_named_rows(table.query), tuple[Copy, ...]()
    if table.runs_as_author:
        query, copies = with_copies(conn, table, query)
    load = f"SELECT {row} FROM ({query}) AS q({names})"
    # With other formats a typed row would have another text, and therefore another identity.
    typed = None if is_formatted else rows_query(query, table.columns)
    stages = RefreshStages(LoadStage(load, typed))
    explanation = {**explain(stages), "reason": str(reason)}
    return Compiled(target_of(conn, table, portable=portable), stages, None, reason, explanation, copies=copies)
