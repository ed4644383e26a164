"""Small tables of such types in two schemas, and random changes to them: mostly from one spelling to an equal one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tests.fuzz.equality.kinds import ALWAYS, BY_KEY, KINDS, SCHEMAS, Kind
from tests.fuzz.equality.names import Names
from tests.fuzz.schema import ROLLBACK, Round, Transaction

NULLS = 0.12
IDS = 12
MANY = 40
NAMES = ((SCHEMAS["one"], "item"), (SCHEMAS["two"], "item"), (SCHEMAS["two"], '"Odd ""Tbl"'), (SCHEMAS["one"], "tall"))
EVERYWHERE = Names((), Random(0))  # qualifies all


@dataclass(frozen=True, slots=True)
class Table:
    """`columns`: name, type. `keyed`: id is its primary key."""

    schema: str
    name: str
    columns: tuple[tuple[str, str], ...]
    keyed: bool
    wide: bool

    @property
    def full(self) -> str:
        return f"{self.schema}.{self.name}"

    def ddl(self) -> str:
        lines = ["id int PRIMARY KEY" if self.keyed else "id int"]
        for name, type_ in self.columns:
            kind = BY_KEY[type_]
            declared = kind.widths[int(self.wide)] if kind.widths else kind.declared
            lines.append(f"{name} {EVERYWHERE.filled(declared)}")
        return f"CREATE TABLE {self.full} ({', '.join(lines)})"


def literal(text: str, kind: Kind, names: Names) -> str:
    declared = "text" if kind.key == "nocase" else kind.declared
    quoted = text.replace("'", "''")
    return f"'{quoted}'::{names.filled(declared)}"


def tables(random: Random, features: frozenset[str]) -> tuple[Table, ...]:
    there = [k for k in KINDS if k.key not in ALWAYS and (not k.needs or k.needs in features)]
    rare = [k for k in there if k.needs]
    kinds = random.sample(there, 6) + [k for k in rare if random.random() < 0.3]
    if not {"citext", "email", "email2"} & {k.key for k in kinds}:
        kinds.append(BY_KEY[random.choice(("citext", "email", "email2"))])
    kinds = list(dict.fromkeys(kinds))
    made = []
    for number, (schema, name) in enumerate(NAMES):
        of = [k for k in kinds if random.random() < 0.75] or kinds[:2]
        columns = [(k.column, k.key) for k in (BY_KEY["int"], BY_KEY["text"], *of)]
        twice = random.choice(of)
        columns.append((f"{twice.key}_2", twice.key))
        random.shuffle(columns)
        made.append(Table(schema, name, tuple(columns), keyed=number != 2, wide=number % 2 == 1))
    return tuple(made)


def setup(random: Random, made: Sequence[Table]) -> list[str]:
    statements = ["SET ROLE fz_team"]
    for table in made:
        statements += [table.ddl(), f"GRANT SELECT ON {table.full} TO PUBLIC"]
        statements += [
            f"CREATE INDEX ON {table.full} ({name})"
            for name, type_ in table.columns
            if type_ not in ("vector",) and random.random() < 0.25
        ]
    for number, table in enumerate(made):
        if number != 3 or random.random() < 0.6:
            statements.append(_insert(table, [_row(random, table) for _ in range(random.randint(6, 10))]))
    return statements


def _row(random: Random, table: Table) -> list[str]:
    return [str(random.randrange(IDS)), *(_value(random, BY_KEY[type_]) for _, type_ in table.columns)]


def _value(random: Random, kind: Kind) -> str:
    if random.random() < NULLS:
        return "NULL"
    return literal(random.choice(random.choice(kind.classes)), kind, EVERYWHERE)


def _insert(table: Table, rows: list[list[str]]) -> str:
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    return f"INSERT INTO {table.full} VALUES {values}{' ON CONFLICT DO NOTHING' if table.keyed else ''}"


class Changes:
    def __init__(self, random: Random, made: Sequence[Table]) -> None:
        self._random = random
        self._tables = made

    def round(self) -> Round:
        return tuple(self._transaction() for _ in range(self._random.choice((1, 1, 2))))

    def _transaction(self) -> Transaction:
        statements = [self._statement() for _ in range(self._random.randint(1, 7))]
        if self._random.random() < 0.05:
            statements.append(ROLLBACK)
        return tuple(statements)

    def _statement(self) -> str:
        random = self._random
        table = random.choice(self._tables)
        way = random.random()
        if way < 0.3:
            return _insert(table, [_row(random, table) for _ in range(random.choice((1, 1, 2, 4)))])
        if way < 0.62:
            return self._respelled(table)
        if way < 0.76:
            name, type_ = random.choice(table.columns)
            return (
                f"UPDATE {table.full} SET {name} = {_value(random, BY_KEY[type_])} WHERE id = {random.randrange(IDS)}"
            )
        if way < 0.92:
            return f"DELETE FROM {table.full} WHERE id = {random.randrange(IDS)}"
        if way < 0.95:
            return self._many(table)
        if way < 0.98:
            return f"DELETE FROM {table.full}"
        return f"TRUNCATE {table.full}"

    def _respelled(self, table: Table) -> str:
        """A value becomes one that is equal, or has another of its spellings."""
        random = self._random
        several = [(n, BY_KEY[t]) for n, t in table.columns if any(len(c) > 1 for c in BY_KEY[t].classes)]
        if not several:
            name, kind = random.choice([(n, BY_KEY[t]) for n, t in table.columns])
            return f"UPDATE {table.full} SET {name} = {_value(random, kind)} WHERE id = {random.randrange(IDS)}"
        name, kind = random.choice(several)
        old, new = random.sample(random.choice([c for c in kind.classes if len(c) > 1]), 2)
        which = f"{name}::text = {literal(old, kind, EVERYWHERE)}::text"
        if random.random() < 0.3:
            which += f" AND id < {random.randrange(IDS)}"
        return f"UPDATE {table.full} SET {name} = {literal(new, kind, EVERYWHERE)} WHERE {which}"

    def _many(self, table: Table) -> str:
        """More rows than a small window has."""
        values = []
        for _, type_ in table.columns:
            kind = BY_KEY[type_]
            whens = [f"WHEN {i} THEN {_value(self._random, kind)}" for i in range(3)]
            values.append(f"CASE i % 4 {' '.join(whens)} ELSE {literal(kind.values[0], kind, EVERYWHERE)} END")
        first = self._random.randrange(IDS)
        return (
            f"INSERT INTO {table.full} SELECT i, {', '.join(values)} FROM generate_series({first}, {first + MANY}) AS i"
            f"{' ON CONFLICT DO NOTHING' if table.keyed else ''}"
        )
