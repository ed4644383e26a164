"""A schema, queries over it and rounds of changes; made from a seed, or read from and written as one SQL script."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from tests.fuzz.queries import Generated, Generator, Relation, base_relations
from tests.fuzz.schema import ROLLBACK, Changes, Round, indexes, setup, tables
from tests.fuzz.tree import Query, outputs

ROUNDS = 4
QUERIES = 25
VIEWS = 2
AS_MANY = "-- as many"


@dataclass(frozen=True, slots=True)
class Case:
    """One database: `setup` makes the tables, `views` the views in order, each round is a tuple of transactions.

    `bases` are stream tables that the queries may read; they are made first. `as_many`: its few changes go the ways of
    many.
    """

    setup: tuple[str, ...]
    views: tuple[str, ...]
    queries: tuple[tuple[str, str], ...]  # name, SQL
    rounds: tuple[Round, ...]
    bases: tuple[tuple[str, str], ...] = ()
    as_many: bool = False


@dataclass(frozen=True, slots=True)
class Wave:
    """What a seed stands for: the case, and the trees of its queries by name."""

    seed: int
    case: Case
    trees: dict[str, Generated]
    views: dict[str, Query]


def alone(made: Wave) -> tuple[str, Case]:
    """One of the queries by itself: what 24 others need can hide what it lacks."""
    name, query = Random(made.seed).choice(made.case.queries)
    return name, replace(made.case, queries=((name, query),))


def generate(seed: int, count: int = QUERIES) -> Wave:
    random = Random(seed)
    made = tables(random)
    statements = (*setup(random, made), *indexes(Random(f"{seed}/index"), made))
    changes = Changes(random, made)
    rounds = tuple(changes.round(first=i == 0) for i in range(ROUNDS))
    relations = base_relations(made)
    views: dict[str, Query] = {}
    for i in range(VIEWS):
        query = Generator(Random(f"{seed}/view/{i}"), relations).view()
        views[f"v{i + 1}"] = query
        shape = tuple((o.name, o.expr.type) for o in outputs(query))
        relations = [*relations, Relation(f"v{i + 1}", shape, query.rows)]
    trees = {}
    if random.random() < 0.5:
        query = Generator(Random(f"{seed}/base"), relations).view()
        trees["s1"] = Generated(query, frozenset())
        relations = [*relations, Relation("s1", tuple((o.name, o.expr.type) for o in outputs(query)), query.rows)]
    bases = tuple((name, g.query.sql()) for name, g in trees.items())
    for i in range(count):
        # A generator of its own each: a query stays the same when the others change.
        trees[f"q{i}"] = Generator(Random(f"{seed}/{i}"), relations).case()
    queries = tuple((name, g.query.sql()) for name, g in trees.items() if name not in dict(bases))
    created = tuple(f"CREATE VIEW {name} AS {query.sql()}" for name, query in views.items())
    return Wave(seed, Case(statements, created, queries, rounds, bases, as_many=seed % 2 == 0), trees, views)


# -- scripts
# ------------------------------------------------------------------------------------------------------------------


def script(case: Case, note: str) -> str:
    """Self-contained: `setup`, `base`, `query` and `round` sections are what `read` looks for."""
    lines = [f"-- {line}" for line in note.splitlines()]
    lines += [AS_MANY] if case.as_many else []
    lines += ["-- setup", *(f"{s};" for s in (*case.setup, *case.views))]
    for word, tables_ in (("base", case.bases), ("query", case.queries)):
        for name, query in tables_:
            lines += [f"-- {word} {name}", f"{query};"]
    for i, transactions in enumerate(case.rounds):
        lines.append(f"-- round {i + 1}")
        for statements in transactions:
            end = "ROLLBACK" if ROLLBACK in statements else "COMMIT"
            lines += ["BEGIN;", *(f"{s};" for s in statements if s != ROLLBACK), f"{end};"]
    return "\n".join(lines) + "\n"


def read(path: Path) -> Case:
    script_text = path.read_text()
    sections = re.split(r"^-- (setup|base \w+|query \w+|round \d+)$", script_text, flags=re.MULTILINE)
    setup_: tuple[str, ...] = ()
    stream_tables: dict[str, list[tuple[str, str]]] = {"base": [], "query": []}
    rounds: list[Round] = []
    for title, text in zip(sections[1::2], sections[2::2], strict=True):
        statements = tuple(s.strip() for s in re.split(r";\s*$", text, flags=re.MULTILINE) if s.strip())
        if title == "setup":
            setup_ = statements
        elif title.startswith(("base", "query")):
            word, name = title.split()
            stream_tables[word].append((name, statements[0]))
        else:
            rounds.append(_transactions(statements))
    as_many = AS_MANY in script_text.splitlines()
    return Case(setup_, (), tuple(stream_tables["query"]), tuple(rounds), tuple(stream_tables["base"]), as_many)


def _transactions(statements: tuple[str, ...]) -> Round:
    made: list[tuple[str, ...]] = []
    current: list[str] = []
    for statement in statements:
        if statement == "BEGIN":
            current = []
        elif statement in ("COMMIT", ROLLBACK):
            made.append((*current, ROLLBACK) if statement == ROLLBACK else tuple(current))
        else:
            current.append(statement)
    return tuple(made)
