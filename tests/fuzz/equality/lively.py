"""Chooses, of many random queries, those whose answers move, as their authors' sessions tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import psycopg

from tests.fuzz.equality.authors import Session
from tests.fuzz.equality.case import QUERIES, TypesCase, TypesWave, generate
from tests.fuzz.equality.kinds import OUTPUT
from tests.fuzz.wave import HEAVY_MS, apply

CANDIDATES = 2  # for each that is wanted
STILL = 5  # of the chosen need not move
MOST_LIVELY_ROWS = 1500


def candidates(seed: int, features: frozenset[str], count: int = QUERIES) -> TypesWave:
    return generate(seed, features, count * CANDIDATES)


def chosen(
    made: TypesWave,
    owner: psycopg.Connection[tuple[object, ...]],
    sessions: Mapping[str, Session],
    count: int = QUERIES,
) -> TypesWave:
    """What PostgreSQL rejects is chosen as well, so that it is reported. `sessions`: of authors, by role."""
    case = made.types_case
    for name, query in case.bases:
        sessions[case.author(name).role].sql(f"CREATE VIEW {OUTPUT}.{name} AS {query}")
        sessions[case.author(name).role].sql(f"GRANT SELECT ON {OUTPUT}.{name} TO PUBLIC")
    moves = {name: 0 for name, _ in case.queries}
    last = {name: _answer(sessions, case, name, query) for name, query in case.queries}
    for changes in case.rounds:
        apply(owner, changes)
        for name, query in case.queries:
            answer = _answer(sessions, case, name, query)
            moves[name] += answer != last[name]
            last[name] = answer
    rejected = [name for name, answer in last.items() if answer == "rejected"]
    moving = [name for name, n in moves.items() if n and name not in rejected and last[name] != "heavy"]
    still = [name for name, n in moves.items() if not n and name not in rejected and last[name] != "heavy"]
    names = {*rejected, *moving[: count - STILL], *still[:STILL]}
    names |= set([*moving[count - STILL :], *still[STILL:]][: max(count - len(names), 0)])
    return replace(made, case=replace(case, queries=tuple(q for q in case.queries if q[0] in names)))


def _answer(sessions: Mapping[str, Session], case: TypesCase, name: str, query: str) -> object:
    told = f"SELECT count(*), md5(string_agg(q::text, '|' ORDER BY q::text COLLATE \"C\")) FROM ({query}) AS q"
    try:
        (found,) = sessions[case.author(name).role].sql(told, timeout_ms=HEAVY_MS)
    except psycopg.errors.QueryCanceled:
        return "heavy"
    except psycopg.Error:
        return "rejected"
    return found if found[0] <= MOST_LIVELY_ROWS else "heavy"
