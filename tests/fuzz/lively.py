"""Chooses, of many random queries, those whose answers move: a table that stays empty shows nothing.

PostgreSQL answers every candidate after every round of changes, in a database of its own; the seed still determines the
choice. A few that stand still are kept, because standing still can also go wrong.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psycopg

from tests.fuzz.case import QUERIES, Wave, generate
from tests.fuzz.wave import apply

CANDIDATES = 3  # for each that is wanted
STILL = 5  # of the chosen need not move
SLOW_SECONDS = 0.25
MOST_LIVELY_ROWS = 1500

REJECTED, SLOW = -1, -2


def chosen(conn: psycopg.Connection[Any], seed: int, count: int = QUERIES) -> Wave:
    """`conn` is to a fresh database. Queries that PostgreSQL rejects are chosen as well, so that they are reported."""
    made = generate(seed, count * CANDIDATES)
    moves = _moves(conn, made)
    rejected = [name for name, n in moves.items() if n == REJECTED]
    moving = [name for name, n in moves.items() if n > 0]
    still = [name for name, n in moves.items() if n == 0]
    names = {*rejected, *moving[: count - STILL], *still[:STILL]}
    names |= set([*moving[count - STILL :], *still[STILL:]][: max(count - len(names), 0)])
    queries = tuple(q for q in made.case.queries if q[0] in names)
    return replace(made, case=replace(made.case, queries=queries))


def _moves(conn: psycopg.Connection[Any], made: Wave) -> dict[str, int]:
    """In how many rounds the answer changed."""
    views = (f"CREATE VIEW {name} AS {query}" for name, query in made.case.bases)
    for statement in (*made.case.setup, *made.case.views, *views):
        conn.execute(statement)
    moves = {name: 0 for name, _ in made.case.queries}
    last = {name: _answer(conn, query, name, moves) for name, query in made.case.queries}
    for changes in made.case.rounds:
        apply(conn, changes)
        for name, query in made.case.queries:
            if moves[name] >= 0:
                answer = _answer(conn, query, name, moves)
                if moves[name] >= 0 and answer != last[name]:
                    moves[name] += 1
                    last[name] = answer
    return moves


def _answer(conn: psycopg.Connection[Any], query: str, name: str, moves: dict[str, int]) -> object:
    begun = time.monotonic()
    try:
        found = conn.execute(
            f"SELECT count(*), md5(string_agg(q::text, '|' ORDER BY q::text COLLATE \"C\")) FROM ({query}) AS q"
        ).fetchone()
    except psycopg.errors.QueryCanceled:
        moves[name] = SLOW
        return None
    except psycopg.Error:
        moves[name] = REJECTED
        return None
    assert found is not None
    if time.monotonic() - begun > SLOW_SECONDS or found[0] > MOST_LIVELY_ROWS:
        moves[name] = SLOW
    return found
