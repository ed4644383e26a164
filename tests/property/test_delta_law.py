"""The law: applying the delta equals recomputing.

Which occurrence of a table a term reads as old, changed or new, which branches of a union it has, which measure an
aggregate keeps: all of that is the product's decision (`pipeline.rules.linear`, `pipeline.templates`). What the
operators mean is the interpreter's.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from operator import itemgetter
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgtrickle.model.catalog import Column, Relation
from pgtrickle.model.flow import Cut, Window
from pgtrickle.pipeline.codec import SqlType
from pgtrickle.pipeline.differentiate import linear
from pgtrickle.pipeline.differentiate.linear import ChangedSource, Term
from pgtrickle.pipeline.plan.measures import Measure
from pgtrickle.pipeline.plan.nodes import (
    Aggregate,
    AggregateCall,
    CallPlace,
    From,
    Input,
    Item,
    KeyPlace,
    Linear,
    Member,
    Output,
    Scan,
    Select,
    UnionAll,
)
from pgtrickle.pipeline.templates.template import FoldTemplate
from tests.golden.shop import compile_plan
from tests.property.generator import Case, Generator, Tables, random_changes, random_content
from tests.property.interpreter import (
    Bag,
    Environment,
    Meaning,
    Row,
    add,
    aggregated,
    all_branches,
    bag,
    environments,
    fold,
    minus,
    reader,
    rows_below,
    shown,
)

WINDOW = Window(Cut(1, 1, ()), Cut(2, 2, ()))
RANDOM = st.randoms(use_true_random=False)
SLOW_GENERATION = settings(
    deadline=None, max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
Role = Callable[[Scan, Term], str]


def terms(node: Linear, old: Tables, new: Tables, meaning: Meaning, role: Role = linear.role) -> list[Bag]:
    """The rows of each telescoped term."""
    changed = {relid: ChangedSource(relid, WINDOW, 1) for relid in old if old[relid] != new[relid]}
    found = []
    for term in linear.delta_terms(node, changed):

        def content(scan: Scan, term: Term = term) -> Bag:
            relid = scan.relation.relid
            reads = role(scan, term)
            return minus(new[relid], old[relid]) if reads == "delta" else old[relid] if reads == "old" else new[relid]

        def branches(union: UnionAll, term: Term = term) -> Sequence[Linear]:
            return linear.contributing(union, term)

        found.append(Counter({row: w * linear.sign(term) for row, w in bag(node, content, meaning, branches).items()}))
    return found


def recomputed(node: Linear, tables: Tables, meaning: Meaning) -> Bag:
    return bag(node, reader(tables), meaning)


def law_holds(node: Linear, old: Tables, new: Tables, meaning: Meaning, role: Role = linear.role) -> bool:
    delta: Bag = Counter()
    for term in terms(node, old, new, meaning, role):
        add(delta, term)
    return delta == minus(recomputed(node, new, meaning), recomputed(node, old, meaning))


def linear_part(case: Case) -> Linear:
    return rows_below(case.plan) if isinstance(case.plan, Aggregate) else case.plan


@SLOW_GENERATION
@given(RANDOM, st.sampled_from([0, 1, linear.MAX_EXPANDED, 9]))
def test_sum_of_the_terms_is_new_minus_old(random: Random, together: int) -> None:
    """Both ways to sum: over sets of changed occurrences, and telescoping where they are more than `together`."""
    case = Generator(random).case()
    old = random_content(random)
    new, _ = random_changes(random, old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "MAX_EXPANDED", together)
        assert law_holds(linear_part(case), old, new, case.meaning)


# -- aggregates: state per group, folded


@dataclass
class State:
    """A state row: the number of rows, and for each measure (name, suffix) its value."""

    n: int = 0
    values: dict[str, Any] = field(default_factory=dict)


Groups = dict[Row, State]
Dies = Callable[[State], bool]


def compiled(plan: Aggregate, types: dict[str, SqlType]) -> FoldTemplate:
    """The product's template; `types` gives the type of each key and argument, which PostgreSQL would tell."""
    below = rows_below(plan)
    answers = iter([[types[item.sql] for item in below.items], [TEXT for _ in plan.calls]])
    columns = [Column(i, o.name, "text", 25, -1) for i, o in enumerate(plan.outputs, start=1)]
    template = compile_plan(plan, columns, lambda _: next(answers))
    assert isinstance(template, FoldTemplate)
    return template


INT, TEXT = SqlType(23, -1, "integer", 23, "b"), SqlType(25, -1, "text", 25, "b")
BOOL, NUMERIC = SqlType(16, -1, "boolean", 16, "b"), SqlType(1700, 524294, "numeric(8,2)", 1700, "b")


def sql_types(plan: Aggregate, meaning: Meaning, tables: Sequence[Tables]) -> dict[str, SqlType]:
    """Types from values, which are of one type per text here; a text that is always NULL counts as an integer."""
    found: dict[str, SqlType] = {}
    by_value = {bool: BOOL, int: INT, str: TEXT, Decimal: NUMERIC}
    for item in rows_below(plan).items:
        found[item.sql] = INT
        for content in tables:
            below = rows_below(plan)
            for environment, _ in environments(below.source, below.where, reader(content), meaning, all_branches):
                value = meaning[item.sql](environment)
                if value is not None:
                    found[item.sql] = by_value[type(value)]
    return found


class Fold:
    """State of an aggregate, maintained as the product does: `pipeline.spark`, `runtime.rereads`, `apply.groups`."""

    def __init__(self, template: FoldTemplate, meaning: Meaning, dies: Dies | None = None) -> None:
        self.template = template
        self.plan = template.plan
        self.meaning = {**meaning, "1": lambda _: 1}  # what is selected for count(*) without keys
        self.dies = dies or (lambda state: state.n == 0)
        self.width = len(self.plan.keys)
        assert isinstance(template.rows, Select)
        self.rows = template.rows
        arguments = [i.name for i in self.rows.items[self.width :] if i.name != "none"]
        self.position = {int(name[1:]): self.width + at for at, name in enumerate(arguments)}
        self.rereads = 0

    def load(self, tables: Tables) -> Groups:
        groups: Groups = {} if self.plan.keys else {(): State(0, self.empty())}
        rows = recomputed(self.rows, tables, self.meaning)
        for key in {row[: self.width] for row in rows} | set(groups):
            of_group = {row: w for row, w in rows.items() if row[: self.width] == key}
            state = State(sum(of_group.values()))
            for measure in self.template.measures.measures:
                values = self.values(measure, of_group)
                state.values |= {
                    measure.name(suffix): self.loaded(measure, suffix, values) for suffix, _ in measure.state
                }
            groups[key] = state
        return groups

    def empty(self) -> dict[str, Any]:
        return {
            m.name(suffix): self.loaded(m, suffix, []) for m in self.template.measures.measures for suffix, _ in m.state
        }

    def loaded(self, measure: Measure, suffix: str, values: list[Any]) -> Any:
        if suffix == "n":
            return len(values)
        if suffix == "s":
            return sum(values)
        return fold(measure.call.function, list(dict.fromkeys(values)) if measure.call.distinct else values)

    def values(self, measure: Measure, rows: dict[Row, int]) -> list[Any]:
        place = self.position[self.plan.calls.index(measure.call)]
        return [row[place] for row, w in rows.items() for _ in range(w) if row[place] is not None]

    def apply(self, groups: Groups, deltas: list[Bag], new: Tables) -> None:
        """Folds the terms into the state. Terms are not netted against each other, as in the product's leaves."""
        now = recomputed(self.rows, new, self.meaning)
        for key in {row[: self.width] for term in deltas for row in term}:
            rows = [(row, w) for term in deltas for row, w in term.items() if row[: self.width] == key]
            known = groups.get(key)
            state = groups.setdefault(key, State(0, self.empty()))
            group_now = {row: w for row, w in now.items() if row[: self.width] == key}
            again = any(self.must_reread(m, known, rows) for m in self.template.measures.measures)
            state.n += sum(w for _, w in rows)
            for measure in self.template.measures.measures:
                self.fold(measure, state, rows, group_now, again)
            self.rereads += again
            if self.plan.keys and self.dies(state):
                del groups[key]

    def must_reread(self, measure: Measure, known: State | None, rows: list[tuple[Row, int]]) -> bool:
        if measure.kind == "reread":
            return True
        if measure.kind not in ("least", "greatest"):
            return False
        gone = self.weighted(measure, rows, sign=-1)
        if not gone:
            return False
        extreme = known.values[measure.name("v")] if known is not None else None
        if extreme is None:
            return True
        return bool(min(gone) <= extreme if measure.kind == "least" else max(gone) >= extreme)

    def weighted(self, measure: Measure, rows: list[tuple[Row, int]], sign: int) -> list[Any]:
        place = self.position[self.plan.calls.index(measure.call)]
        return [row[place] for row, w in rows if w * sign > 0 and row[place] is not None]

    def fold(
        self, measure: Measure, state: State, rows: list[tuple[Row, int]], now: dict[Row, int], again: bool
    ) -> None:
        place = self.position[self.plan.calls.index(measure.call)]
        if measure.kind == "add":
            valued = [(row[place], w) for row, w in rows if row[place] is not None]
            state.values[measure.name("n")] += sum(w for _, w in valued)
            if len(measure.state) == 2:
                state.values[measure.name("s")] += sum(v * w for v, w in valued)
        elif measure.kind == "reread" or again:
            state.values[measure.name("v")] = self.loaded(measure, "v", self.values(measure, now))
        else:
            name = measure.name("v")
            seen = [v for v in (state.values[name], *self.weighted(measure, rows, sign=1)) if v is not None]
            state.values[name] = fold("min" if measure.kind == "least" else "max", seen)

    def visible(self, groups: Groups) -> Bag:
        result: Bag = Counter()
        for key, state in groups.items():
            add(
                result, shown(self.plan, key, [self.value(i, state) for i in range(len(self.plan.calls))], self.meaning)
            )
        return result

    def value(self, i: int, state: State) -> Any:
        """A call's value from the state: the Python of what `measures.values[i]` is in SQL."""
        sql, call = self.template.measures.values[i], self.plan.calls[i]
        if sql == 's."n"':
            return state.n
        measure = next(m for m in self.template.measures.measures if f'"{m.name(m.state[-1][0])}"' in sql)
        if len(measure.state) == 1:
            return state.values[measure.name(measure.state[0][0])]
        count, total = state.values[measure.name("n")], state.values[measure.name("s")]
        if count == 0:
            return None
        return Fraction(total) / count if call.function == "avg" else total


def folded(case: Case, random: Random, dies: Dies | None = None, rounds: int = 3) -> list[tuple[Bag, Bag]]:
    """Visible rows by folding and by recomputing, after each round of changes."""
    plan, meaning = case.plan, case.meaning
    assert isinstance(plan, Aggregate)
    content = [random_content(random)]
    for _ in range(rounds):
        content.append(random_changes(random, content[-1])[0])
    keeper = Fold(compiled(plan, sql_types(plan, meaning, content)), meaning, dies)
    groups = keeper.load(content[0])
    pairs = []
    for old, new in itertools.pairwise(content):
        keeper.apply(groups, terms(keeper.rows, old, new, keeper.meaning), new)
        pairs.append((keeper.visible(groups), aggregated(plan, reader(new), meaning)))
    return pairs


def aggregate_case(random: Random) -> Case:
    generator = Generator(random)
    return Case(generator.aggregate(), generator.meaning)


@SLOW_GENERATION
@given(RANDOM)
def test_folded_groups_are_recomputed_groups(random: Random) -> None:
    for by_folding, by_recomputing in folded(aggregate_case(random), random):
        assert by_folding == by_recomputing


def test_folded_groups_are_recomputed_groups_for_many_seeds() -> None:
    """Plain random draws: larger plans than hypothesis tends to choose."""
    for seed in range(400):
        random = Random(seed)
        assert all(a == b for a, b in folded(aggregate_case(random), random)), seed


# -- a law that cannot fail proves nothing


def new_everywhere(scan: Scan, term: Term) -> str:
    """dL * R1 + L1 * dR, without the cross term: a set of two is taken for one of its members."""
    return "delta" if scan.occurrence == min(term.deltas) else "new"


def test_joining_changes_with_new_content_only_breaks_the_law() -> None:
    broken = 0
    for seed in range(600):
        random = Random(seed)
        case = Generator(random).case()
        old = random_content(random)
        new, _ = random_changes(random, old)
        broken += not law_holds(linear_part(case), old, new, case.meaning, new_everywhere)
        assert law_holds(linear_part(case), old, new, case.meaning)
    assert broken > 20


def test_dropping_a_group_whose_sum_is_zero_breaks_the_law() -> None:
    plan, meaning = small_aggregate("sum")
    case = Case(plan, meaning)

    def wrong(state: State) -> bool:
        return state.n == 0 or state.values["m0_s"] == 0

    broken = 0
    for seed in range(300):
        broken += any(a != b for a, b in folded(case, Random(seed), wrong))
        assert all(a == b for a, b in folded(case, Random(seed)))
    assert broken > 20


def test_keeping_an_extreme_without_reading_again_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, meaning = small_aggregate("min")
    case = Case(plan, meaning)
    assert all(a == b for seed in range(300) for a, b in folded(case, Random(seed)))
    monkeypatch.setattr(Fold, "must_reread", lambda *_: False)
    assert sum(any(a != b for a, b in folded(case, Random(seed))) for seed in range(300)) > 20


def test_trusting_a_minimum_of_a_group_unknown_to_the_state_breaks_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join's terms may bring and take a value that never was in the group."""
    plan, meaning = joined_minimum()
    old: Tables = {1: Counter({(1, 5): 1, (1, 9): 1}), 2: Counter()}
    new: Tables = {1: Counter({(1, 9): 1}), 2: Counter({(1, 7): 1})}
    keeper = Fold(compiled(plan, {"b.g": INT, "a.v": INT}), meaning)

    def visible() -> Bag:
        groups = keeper.load(old)
        keeper.apply(groups, terms(keeper.rows, old, new, keeper.meaning), new)
        return keeper.visible(groups)

    assert visible() == Counter({(7, 9): 1})
    reread = Fold.must_reread
    monkeypatch.setattr(
        Fold, "must_reread", lambda self, m, known, rows: known is not None and reread(self, m, known, rows)
    )
    assert visible() == Counter({(7, 5): 1})


def two_columns(relid: int, name: str, *columns: str) -> Relation:
    return Relation(
        relid, "public", name, "r", tuple(Column(i, c, "integer", 23, -1) for i, c in enumerate(columns, 1))
    )


def small_aggregate(function: str) -> tuple[Aggregate, dict[str, Callable[[Environment], Any]]]:
    random = Random(0)
    generator = Generator(random)
    member, _ = generator.member(0)
    alias = member.alias
    call = AggregateCall(function, f"{alias}.v", None, distinct=False, sql=f"{function}({alias}.v)")
    plan = Aggregate(
        Input(From((0,), (member,)), None),
        (f"{alias}.t",),
        (call,),
        (Output("t", (KeyPlace(0),)), Output("v", (CallPlace(0),))),
        None,
    )
    meaning: dict[str, Callable[[Environment], Any]] = {
        f"{alias}.v": lambda e: e[f"{alias}.v"],
        f"{alias}.t": lambda e: e[f"{alias}.t"],
        "$k0": lambda e: e["$k0"],
        "$c0": lambda e: e["$c0"],
    }
    return plan, meaning


def joined_minimum() -> tuple[Aggregate, dict[str, Callable[[Environment], Any]]]:
    a = Member(Scan(0, two_columns(1, "a", "k", "v"), ((1, "k"), (2, "v"))), "a")
    b = Member(Scan(1, two_columns(2, "b", "k", "g"), ((1, "k"), (2, "g"))), "b")
    call = AggregateCall("min", "a.v", None, distinct=False, sql="min(a.v)")
    plan = Aggregate(
        Input(From((0, " JOIN ", 1, " ON (a.k = b.k)"), (a, b)), None),
        ("b.g",),
        (call,),
        (Output("g", (KeyPlace(0),)), Output("lo", (CallPlace(0),))),
        None,
    )
    texts = ("a.v", "b.g", "$k0", "$c0")
    meaning: dict[str, Callable[[Environment], Any]] = {text: itemgetter(text) for text in texts}
    meaning["(a.k = b.k)"] = lambda e: e["a.k"] == e["b.k"]
    return plan, meaning


# -- the interpreter itself


def test_interpreter_multiplies_weights_and_keeps_nulls_apart() -> None:
    plan, meaning = joined_minimum()
    rows = Select((Item("v", "a.v"),), rows_below(plan).source, None)
    tables: Tables = {1: Counter({(1, 5): 2, (None, 6): 1}), 2: Counter({(1, 0): 3, (None, 0): 1})}
    meaning["(a.k = b.k)"] = lambda e: None if e["a.k"] is None or e["b.k"] is None else e["a.k"] == e["b.k"]
    assert recomputed(rows, tables, meaning) == Counter({(5,): 6})


def test_interpreter_gives_one_group_without_keys_even_over_nothing() -> None:
    plan, meaning = joined_minimum()
    whole = Aggregate(plan.input, (), plan.calls, (Output("lo", (CallPlace(0),)),), None)
    assert aggregated(whole, lambda _: Counter(), meaning) == Counter({(None,): 1})
    assert aggregated(plan, lambda _: Counter(), meaning) == Counter()
