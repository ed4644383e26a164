"""What a seed stands for: tables, views of another role, authors with queries; written as and read from one script."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from tests.fuzz import case as base
from tests.fuzz.case import Case, Wave
from tests.fuzz.equality.authors import Author, authors, path
from tests.fuzz.equality.kinds import OUTPUT
from tests.fuzz.equality.queries import EXACT, Generator, Relation
from tests.fuzz.equality.tables import Changes, setup, tables
from tests.fuzz.queries import Generated

ROUNDS = 3
QUERIES = 40
VIEWS = 2
ANY = "*"
BASE = "s1"


@dataclass(frozen=True, slots=True)
class TypesCase(Case):
    """`by`: whose a query is, by the number of an author. `texts`: of its columns, by name, how much of a value's text
    is determined. `pools`: of a type, the columns of tables that have it. The name `*` stands for all others.
    """

    authors: tuple[Author, ...] = ()
    by: tuple[tuple[str, int], ...] = ()
    texts: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    pools: tuple[tuple[str, str], ...] = ()  # type, a query for its texts

    def author(self, name: str) -> Author:
        of = dict(self.by)
        return self.authors[of[name] if name in of else of[ANY]]

    def text(self, name: str) -> dict[str, str]:
        of = dict(self.texts)
        return dict(of[name] if name in of else of.get(ANY, ()))


@dataclass(frozen=True, slots=True)
class TypesWave(Wave):
    @property
    def types_case(self) -> TypesCase:
        assert isinstance(self.case, TypesCase)
        return self.case


def generate(seed: int, features: frozenset[str], count: int = QUERIES) -> TypesWave:
    random = Random(f"types {seed}")
    made = tables(random, features)
    statements = setup(random, made)
    changes = Changes(random, made)
    rounds = tuple(changes.round() for _ in range(ROUNDS))
    writers = authors(random)
    relations = [Relation.of(table) for table in made]
    views = ["SET ROLE fz_viewer"]
    for i in range(VIEWS):
        seen = path(Random(f"types {seed}/view/{i}"))
        generator = Generator(Random(f"types {seed}/view/{i}"), seen, tuple(relations), prefix=f"v{i}_")
        shape = generator.view()
        name = ("other", f'"View {i}"')
        views += [
            f"SET search_path = {', '.join(seen) or chr(39) * 2}",
            f"CREATE VIEW {'.'.join(name)} AS {shape.query.sql()}",
            f"GRANT SELECT ON {'.'.join(name)} TO PUBLIC",
        ]
        relations.append(Relation(*name, tuple((c.name, c.type, c.exact, c.plain) for c in shape.columns), keyed=False))
    trees: dict[str, Generated] = {}
    by, texts = [], []
    if random.random() < 0.4:  # a stream table that others read, in which every text is what it is
        generator = Generator(Random(f"types {seed}/base"), writers[0].path, tuple(relations), prefix="b")
        shape = generator.base()
        trees[BASE] = Generated(shape.query, frozenset(generator.used))
        by.append((BASE, 0))
        texts.append((BASE, tuple(sorted(generator.texts.items()))))
        columns = tuple((c.name, c.type, True, c.plain) for c in shape.columns)
        relations.append(Relation(OUTPUT, BASE, columns, keyed=False))
    bases = tuple((name, g.query.sql()) for name, g in trees.items())
    for i in range(count):
        number = Random(f"types {seed}/{i}/author").randrange(len(writers))
        author = writers[number]
        generator = Generator(Random(f"types {seed}/{i}"), author.path, tuple(relations), prefix="c", role=author.role)
        query = generator.case()
        trees[f"q{i}"] = Generated(query, frozenset(generator.used))
        by.append((f"q{i}", number))
        texts.append((f"q{i}", tuple(sorted(generator.texts.items()))))
    pools: dict[str, list[str]] = {}
    for table in made:
        for column, type_ in table.columns:
            pools.setdefault(type_, []).append(f"SELECT {column}::text FROM {table.full}")
    case = TypesCase(
        tuple(statements),
        tuple(views),
        tuple((name, g.query.sql()) for name, g in trees.items() if name != BASE),
        rounds,
        bases,
        as_many=seed % 2 == 0,
        authors=writers,
        by=tuple(by),
        texts=tuple(texts),
        pools=tuple((type_, " UNION ".join(selects)) for type_, selects in pools.items()),
    )
    return TypesWave(seed, case, trees, {})


def only(case: TypesCase, name: str) -> TypesCase:
    """The case with this query alone, whose author and texts are those of every other query that replaces it."""
    texts = case.text(name)
    types = {flag.partition(":")[2] for flag in texts.values()}
    return replace(
        case,
        queries=tuple(q for q in case.queries if q[0] == name),
        by=((ANY, dict(case.by)[name]), *(b for b in case.by if b[0] == BASE)),
        texts=((ANY, tuple(texts.items())), *(t for t in case.texts if t[0] == BASE)),
        pools=tuple(p for p in case.pools if p[0] in types),
    )


def script(case: TypesCase, note: str) -> str:
    """Two lines of the head are read back: who asks, and what of the answers is determined."""
    who = {"authors": [asdict(a) for a in case.authors], "by": dict(case.by)}
    said = {"texts": {name: dict(columns) for name, columns in case.texts}, "pools": dict(case.pools)}
    return base.script(case, f"{note}\nwho: {json.dumps(who)}\ntexts: {json.dumps(said)}")


def read(path_: Path) -> TypesCase:
    case = base.read(path_)
    text = path_.read_text()
    who = json.loads(_line(text, "who"))
    said = json.loads(_line(text, "texts"))
    writers = tuple(
        Author(a["role"], a["way"], tuple(a["path"]), tuple((n, v) for n, v in a["settings"])) for a in who["authors"]
    )
    return TypesCase(
        case.setup,
        case.views,
        case.queries,
        case.rounds,
        case.bases,
        case.as_many,
        writers,
        tuple(who["by"].items()),
        tuple((name, tuple(columns.items())) for name, columns in said["texts"].items()),
        tuple(said["pools"].items()),
    )


def _line(text: str, word: str) -> str:
    found = re.search(rf"^-- {word}: (.*)$", text, flags=re.MULTILINE)
    assert found is not None, word
    return found[1]


__all__ = ["EXACT", "TypesCase", "TypesWave", "generate", "only", "read", "script"]
