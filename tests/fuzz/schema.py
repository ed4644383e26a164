"""Small tables with many equal values and NULLs, and random changes to them, as SQL text. Pure: nothing but a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.fuzz.tree import BOOL, DATE, INT, NUM, TEXT

INTS, ARRAY, JSON = (0, 1, 2, 3, 4), "int[]", "jsonb"
TEXTS = ("a", "b", "c", "ab", "", "B c")
NUMS = ("0.00", "0.50", "1.25", "-1.25", "10.00")
DATES = ("2024-01-01", "2024-01-02", "2024-02-28", "2024-02-29", "2023-12-31")
DECLARED = {
    INT: "int",
    NUM: "numeric(10,2)",
    TEXT: "text",
    DATE: "date",
    BOOL: "boolean",
    ARRAY: "int[]",
    JSON: "jsonb",
}
NULLS = 0.15
IDS = 14  # values of primary keys: few, so that a row comes back


@dataclass(frozen=True, slots=True)
class Table:
    """`key`: the first column is the primary key. `required`: NOT NULL. `partitions`: by hash of the first column."""

    name: str
    columns: tuple[tuple[str, str], ...]
    key: bool
    required: frozenset[str]
    partitions: int = 0

    @property
    def shape(self) -> tuple[tuple[str, str], ...]:
        return self.columns

    def ddl(self) -> list[str]:
        lines = []
        for i, (name, type_) in enumerate(self.columns):
            rule = " PRIMARY KEY" if self.key and i == 0 else " NOT NULL" if name in self.required else ""
            lines.append(f"{name} {DECLARED[type_]}{rule}")
        columns = f"CREATE TABLE {self.name} ({', '.join(lines)})"
        if not self.partitions:
            return [columns]
        return [
            f"{columns} PARTITION BY HASH ({self.columns[0][0]})",
            *(
                f"CREATE TABLE {self.name}_{i} PARTITION OF {self.name} "
                f"FOR VALUES WITH (MODULUS {self.partitions}, REMAINDER {i})"
                for i in range(self.partitions)
            ),
        ]


SHAPES: dict[str, tuple[tuple[str, str], ...]] = {
    "t1": (("id", INT), ("a", INT), ("b", INT), ("s", TEXT), ("n", NUM), ("d", DATE), ("f", BOOL)),
    "t2": (("a", INT), ("b", INT), ("s", TEXT), ("n", NUM)),
    "t3": (("id", INT), ("t1_id", INT), ("s", TEXT), ("d", DATE), ("xs", ARRAY), ("js", JSON)),
    "t4": (("a", INT), ("s", TEXT), ("n", NUM), ("f", BOOL)),
    "edge": (("src", INT), ("dst", INT)),
}
EMPTY_AT_FIRST = "t4"
KEYED = frozenset({"t1", "t3"})

CALLED = {"t1": "t2", "t2": "t1", "t3": '"t 3"', "t4": '"select"', "edge": "t3"}  # when tables get other names
OURS = ("n", "c0", "s0", "k", "w", "c1", "r")  # other names of columns

Transaction = tuple[str, ...]
Round = tuple[Transaction, ...]
ROLLBACK = "ROLLBACK"


def tables(random: Random) -> dict[str, Table]:
    made = {}
    for name, columns in SHAPES.items():
        required = frozenset(c for c, _ in columns if random.random() < 0.15)
        key = name in KEYED and (name == "t1" or random.random() < 0.7)
        partitions = 2 if name == "t2" and random.random() < 0.3 else 0
        made[name] = Table(name, columns, key, required, partitions)
    return made


def literal(random: Random, type_: str, *, null: bool = True) -> str:
    """A value as SQL that needs no context to have its type."""
    if null and random.random() < NULLS:
        return f"NULL::{DECLARED[type_]}"
    match type_:
        case "int":
            return str(random.choice(INTS))
        case "numeric":
            return random.choice(NUMS)
        case "text":
            return f"'{random.choice(TEXTS)}'::text"
        case "date":
            return f"DATE '{random.choice(DATES)}'"
        case "boolean":
            return random.choice(("true", "false"))
        case "int[]":
            items = [random.choice(("0", "1", "2", "3", "NULL")) for _ in range(random.randrange(4))]
            return f"ARRAY[{', '.join(items)}]::int[]"
    items = [random.choice(("1", "2", "null", '"x"', '"y"')) for _ in range(random.randrange(4))]
    return f"'[{', '.join(items)}]'::jsonb"


def setup(random: Random, made: dict[str, Table]) -> list[str]:
    statements = [s for t in made.values() for s in t.ddl()]
    for table in made.values():
        if table.name != EMPTY_AT_FIRST:
            rows = [_row(random, table) for _ in range(random.randint(6, 12))]
            statements.append(_insert(table, rows + random.sample(rows, 2)))
    return statements


def indexes(random: Random, made: dict[str, Table]) -> list[str]:
    """On some of the columns: what an index finds goes ways of its own."""
    columns = [(t.name, name) for t in made.values() for name, type_ in t.columns if type_ in (INT, TEXT, DATE)]
    return [f"CREATE INDEX ON {table} ({name})" for table, name in columns if random.random() < 0.4]


def _row(random: Random, table: Table) -> tuple[str, ...]:
    values = [literal(random, type_, null=name not in table.required) for name, type_ in table.columns]
    if table.key:
        values[0] = str(random.randrange(IDS))
    return tuple(values)


def _insert(table: Table, rows: list[tuple[str, ...]]) -> str:
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    conflict = " ON CONFLICT DO NOTHING" if table.key else ""
    return f"INSERT INTO {table.name} VALUES {values}{conflict}"


class Changes:
    """Rounds of transactions. Rows that were deleted or inserted once come again later."""

    def __init__(self, random: Random, made: dict[str, Table]) -> None:
        self._random = random
        self._tables = made
        self._seen: list[tuple[str, tuple[str, ...]]] = []

    def round(self, *, first: bool = False) -> Round:
        made = [self._transaction() for _ in range(self._random.choice((1, 1, 2, 3)))]
        if first:
            made.append((self._some_rows(self._tables[EMPTY_AT_FIRST]),))
        return tuple(made)

    def _transaction(self) -> Transaction:
        statements = [self._statement() for _ in range(self._random.randint(1, 8))]
        if self._random.random() < 0.08:
            statements.append(ROLLBACK)
        return tuple(statements)

    def _statement(self) -> str:
        random = self._random
        table = random.choice(list(self._tables.values()))
        way = random.random()
        if way < 0.42:
            return self._some_rows(table)
        if way < 0.50 and self._seen:
            name, row = random.choice(self._seen)
            return _insert(self._tables[name], [row])
        if way < 0.75:
            sets = random.sample(table.columns, random.choice((1, 1, 2)))
            values = ", ".join(f"{name} = {self._new_value(table, name, type_)}" for name, type_ in sets)
            return f"UPDATE {table.name} SET {values} WHERE {self._which(table, unique=self._moves_key(table, sets))}"
        if way < 0.97:
            return f"DELETE FROM {table.name} WHERE {self._which(table)}"
        return f"DELETE FROM {table.name}"

    def _some_rows(self, table: Table) -> str:
        rows = [_row(self._random, table) for _ in range(self._random.choice((1, 1, 2, 3)))]
        self._seen += [(table.name, row) for row in rows]
        return _insert(table, rows)

    def _moves_key(self, table: Table, sets: list[tuple[str, str]]) -> bool:
        return table.key and table.columns[0] in sets

    def _new_value(self, table: Table, name: str, type_: str) -> str:
        if table.key and name == table.columns[0][0]:
            # A value that nobody has, whatever happened before.
            return f"(SELECT max({name}) + 1 FROM {table.name})"
        if type_ == INT and self._random.random() < 0.3:
            return f"coalesce({name}, 0) + 1"
        return literal(self._random, type_, null=name not in table.required)

    def _which(self, table: Table, *, unique: bool = False) -> str:
        random = self._random
        if table.key and (unique or random.random() < 0.5):
            return f"{table.columns[0][0]} = {random.randrange(IDS)}"
        name, type_ = random.choice([c for c in table.columns if c[1] not in (ARRAY, JSON)])
        test = f"{name} IS NOT DISTINCT FROM {literal(random, type_)}"
        if table.key or random.random() < 0.5:
            return test
        return f"ctid = (SELECT min(ctid) FROM {table.name} WHERE {test})"


def renamed_tables(*, back: bool) -> Transaction:
    """All at once, by names in between, as some change places. And a row of each goes."""
    names = [(now, name) if back else (name, now) for name, now in CALLED.items()]
    forth = [f"ALTER TABLE {old} RENAME TO between_{i}" for i, (old, _) in enumerate(names)]
    return (
        *forth,
        *(f"ALTER TABLE between_{i} RENAME TO {new}" for i, (_, new) in enumerate(names)),
        *map(_less, [n for _, n in names]),
    )


def renamed_columns(*, back: bool) -> Transaction:
    """Each column of a table gets a name that our own statements have for something."""
    made = []
    for table, columns in SHAPES.items():
        names = [name for name, _ in columns]
        others = OURS[: len(names)]
        pairs = list(zip(others, names, strict=True) if back else zip(names, others, strict=True))
        made += [f"ALTER TABLE {table} RENAME {old} TO between_{i}" for i, (old, _) in enumerate(pairs)]
        made += [f"ALTER TABLE {table} RENAME between_{i} TO {new}" for i, (_, new) in enumerate(pairs)]
    return (*made, *map(_less, SHAPES))


def _less(table: str) -> str:
    return f"DELETE FROM {table} WHERE ctid = (SELECT min(ctid) FROM {table})"
