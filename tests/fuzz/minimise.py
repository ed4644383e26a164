"""Makes a failing case small: fewer changes, then a simpler query, as long as it fails in the same way.

Candidates are tried many at a time, as stream tables of one database, because a turn costs the same for one or twenty.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tests.fuzz.case import Case, Wave
from tests.fuzz.schema import ROLLBACK, Round
from tests.fuzz.tree import Query, inlined, simpler
from tests.fuzz.wave import Verdict

BATCH = 16
QUERY = "q"  # the name of the table that fails
Runner = Callable[[Case], dict[str, Verdict]]


@dataclass(frozen=True, slots=True)
class Minimal:
    case: Case
    verdict: Verdict


def minimise(run: Runner, made: Wave, name: str, verdict: Verdict, *, seconds: float = 60.0) -> Minimal:
    """The case with only this query, as small as the time allows."""
    return _Minimiser(run, made, made.trees[name].query, verdict, time.monotonic() + seconds).run()


class _Minimiser:
    def __init__(self, run: Runner, made: Wave, query: Query, verdict: Verdict, deadline: float) -> None:
        case = made.case
        self.runner = run
        self.query = query
        self.views = made.views
        self.verdict = verdict
        self.deadline = deadline
        rounds = case.rounds[: verdict.round] if verdict.status != "unfaithful" else case.rounds
        self.case = replace(case, rounds=rounds, queries=((QUERY, query.sql()),))

    def run(self) -> Minimal:
        self._begin_late()
        self._inline_views()
        self._shrink_query()
        self._shrink_changes()
        self._shrink_query()
        self._shrink_setup()
        self._shrink_changes()
        return Minimal(self.case, self.verdict)

    def _time_is_up(self) -> bool:
        return time.monotonic() > self.deadline

    def _same(self, verdict: Verdict) -> bool:
        return verdict.failed and verdict.status == self.verdict.status and verdict.mode == self.verdict.mode

    def _holds(self, case: Case) -> bool:
        if self._time_is_up():
            return False
        verdict = self._try(case)[QUERY]
        if self._same(verdict):
            self.case, self.verdict = case, verdict
            return True
        return False

    def _try(self, case: Case) -> dict[str, Verdict]:
        try:
            return self.runner(case)
        except Exception:  # noqa: BLE001 - a change that does not fit the schema any more, for one
            return {name: Verdict() for name, _ in case.queries}

    def _begin_late(self) -> None:
        """All rounds but the last before the table is made: most failures need only one."""
        *early, last = self.case.rounds or ((),)
        before = tuple(s for changes in early for t in changes if ROLLBACK not in t for s in t)
        if before:
            self._holds(replace(self.case, setup=(*self.case.setup, *before), rounds=(last,)))

    def _inline_views(self) -> None:
        query = inlined(self.query, self.views)
        if self._holds(replace(self.case, queries=((QUERY, query.sql()),))):
            self.query = query

    def _shrink_query(self) -> None:
        while not self._time_is_up():
            smaller = self._smaller_query()
            if smaller is None:
                return
            self.query = smaller
            self.case = replace(self.case, queries=((QUERY, smaller.sql()),))

    def _smaller_query(self) -> Query | None:
        """The smallest of the first batch of simpler trees that has one which fails."""
        size = len(self.query.sql())
        seen: dict[str, Query] = {}
        for tree in simpler(self.query):
            text = tree.sql()
            if len(text) < size:
                seen.setdefault(text, tree)
        trees = iter(sorted(seen.values(), key=lambda t: len(t.sql())))
        while batch := list(itertools.islice(trees, BATCH)):
            if self._time_is_up():
                return None
            queries = tuple((f"q{i}", tree.sql()) for i, tree in enumerate(batch))
            found = self._try(replace(self.case, queries=queries))
            for tree, (name, _) in zip(batch, queries, strict=True):
                if name in found and self._same(found[name]):
                    self.verdict = found[name]
                    return tree
        return None

    def _shrink_changes(self) -> None:
        again = True
        while again and not self._time_is_up():
            again = any(self._holds(replace(self.case, rounds=rounds)) for rounds in _fewer(self.case.rounds))

    def _shrink_setup(self) -> None:
        """Views and rows that do not matter."""
        self._holds(replace(self.case, bases=()))
        for view in reversed(self.case.views):
            self._holds(replace(self.case, views=tuple(v for v in self.case.views if v != view)))
        size = len(self.case.setup) // 2
        while size:
            for start in range(len(self.case.setup) - size, -1, -size):
                self._holds(replace(self.case, setup=self.case.setup[:start] + self.case.setup[start + size :]))
            size //= 2
        for i in range(len(self.case.setup)):
            for shorter in _fewer_rows(self.case.setup[i]):
                if self._holds(replace(self.case, setup=(*self.case.setup[:i], shorter, *self.case.setup[i + 1 :]))):
                    break


def _fewer(rounds: tuple[Round, ...]) -> Iterator[tuple[Round, ...]]:
    """A round, a transaction or a statement less; large pieces first."""
    for i in range(len(rounds)):
        if len(rounds) > 1:
            yield rounds[:i] + rounds[i + 1 :]
    for i, transactions in enumerate(rounds):
        for j in range(len(transactions)):
            if len(transactions) > 1:
                yield (*rounds[:i], transactions[:j] + transactions[j + 1 :], *rounds[i + 1 :])
        for j, statements in enumerate(transactions):
            size = len(statements)
            pieces = {(0, size // 2), (size // 2, size)} if size > 3 else set()
            for start, end in [*sorted(pieces), *((k, k + 1) for k in range(size))]:
                kept = statements[:start] + statements[end:]
                if kept:
                    yield (*rounds[:i], (*transactions[:j], kept, *transactions[j + 1 :]), *rounds[i + 1 :])


def _fewer_rows(statement: str) -> Iterator[str]:
    head, word, rest = statement.partition(" VALUES ")
    if not word or not statement.startswith("INSERT"):
        return
    tail = " ON CONFLICT DO NOTHING" if rest.endswith(" ON CONFLICT DO NOTHING") else ""
    rows = rest.removesuffix(tail).split("), (")
    for keep in (1, 2, len(rows) // 2):
        if 0 < keep < len(rows):
            kept = "), (".join(rows[:keep])
            yield f"{head}{word}{kept}){tail}" if not kept.endswith(")") else f"{head}{word}{kept}{tail}"
