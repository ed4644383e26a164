"""The target of a refresh: the stream table, its state table, and how encoded rows are decoded.

An encoded row is one text: PostgreSQL's array of its columns' texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgtrickle.db.statements import statement
from pgtrickle.model.catalog import REGION, Column
from pgtrickle.model.identifiers import quote_ident
from pgtrickle.model.texts import FIRST_OF_USERS, HASHED, as_text, from_text

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


COLLATED = frozenset({19, 25, 1042, 1043})  # name, text, character, character varying
# Types whose values are equal exactly when their texts are: bool, bytea, integers, text, oid, character varying, date,
# timestamp, timestamptz, uuid.
TEXT_DECIDES = frozenset({16, 17, 20, 21, 23, 25, 26, 1043, 1082, 1114, 1184, 2950})


@dataclass(frozen=True, slots=True)
class Target:
    """A stream table's storage. `lookups`: columns by which refreshes find its rows.

    `is_mirror`: nothing is computed for it. `key`: columns without NULLs and with a unique index, by which rows are
    found instead of by their identity. `has_record_hash`: whether the server can hash a row of values.
    `partition_column`: of a partitioned table, see apply/partitions.py.
    """

    pgt_id: int
    schema: str
    name: str
    columns: tuple[Column, ...]
    lookups: tuple[str, ...] = ()
    is_mirror: bool = False
    key: tuple[str, ...] = ()
    has_record_hash: bool = False
    partition_column: str | None = None
    partition_collation: str | None = None
    texts: dict[str, str] = field(default_factory=dict, init=False, compare=False, repr=False)  # of its statements

    @property
    def table(self) -> str:
        return f"{quote_ident(self.schema)}.{quote_ident(self.name)}"

    @property
    def state(self) -> str:
        return f'"pgtrickle_changes"."state_{self.pgt_id}"'

    def text(self, name: str, made: Callable[[], str]) -> str:
        """A statement that is rendered once."""
        text = self.texts.get(name)
        if text is None:
            text = self.texts[name] = made()
        return text

    def column_list(self) -> str:
        return ", ".join([*(quote_ident(c.name) for c in self.columns), '"__pgt_row_id"'])

    def decoded(self, array: str) -> str:
        """The columns of an encoded row, cast back to their types."""
        return "".join(f"{from_text(f'{array}[{i}]', c.type, c.base)}, " for i, c in enumerate(self.columns, start=1))

    def match_condition(self, stored: str, carried: str) -> str:
        """An indexable condition: a stored row may be the encoded row `carried` (h, a)."""
        if not self.key:
            return f"{stored}.__pgt_row_id = {carried}.h"
        places = {c.name: (i, c) for i, c in enumerate(self.columns, start=1)}
        values = {name: from_text(f"{carried}.a[{i}]", c.type, c.base) for name, (i, c) in places.items()}
        return " AND ".join(f"{stored}.{quote_ident(name)} = {values[name]}" for name in self.key)

    def identity(self, values: Sequence[str], text: str, texts: Sequence[str] | None = None) -> str:
        """The hash by which a stored row is found: of the row's values (of those types without a hash function, of
        their texts), or of its text where the server cannot hash values. Rows with equal texts have equal hashes; the
        row's text decides between several. The hash of the values takes a quarter of the time.

        `texts`: those of the values, if they are there already.
        """
        if not self.has_record_hash:
            return text_hash(text)
        hashed = []
        for i, (value, column) in enumerate(zip(values, self.columns, strict=True)):
            if column.base not in HASHED:
                value = as_text(value, column.base) if texts is None else texts[i]
            # The default or a column's collation may be nondeterministic, and its hash may change with an upgrade.
            is_text = column.base in COLLATED or column.base not in HASHED
            hashed.append(f'{value} COLLATE "C"' if is_text else value)
        return f"pg_catalog.hash_record_extended(ROW({', '.join(hashed)}), 0)"

    def identity_of_array(self, array: str, text: str) -> str:
        """The same for an encoded row, given as an array of texts and as one text."""
        texts = [f"{array}[{i}]" for i in range(1, len(self.columns) + 1)]
        values = [from_text(t, c.type, c.base) for t, c in zip(texts, self.columns, strict=True)]
        return self.identity(values, text, texts)

    @property
    def identity_name(self) -> str:
        """Tables whose identities were computed in another way are loaded again."""
        if not self.has_record_hash:
            return "hash of the text"
        if all(c.base in HASHED for c in self.columns):
            return "hash of the record"
        return "hash of the record, with texts"

    def decoded_rows(self, texts: str) -> str:
        """A relation with the columns c0, c1, ..., from a relation whose only column is the encoded row."""
        listed = ", ".join(f"{from_text(f'd.a[{i + 1}]', c.type, c.base)} AS c{i}" for i, c in enumerate(self.columns))
        # OFFSET 0: the array of a row is built once; merged into the outer query, it would be built for each column.
        return f"(SELECT {listed} FROM (SELECT s.k::text[] AS a FROM {texts} AS s(k) OFFSET 0) AS d)"

    def encoded(self, alias: str) -> str:
        """A stored row, encoded.

        Rows with equal texts are identical, which is stricter than equality, so the wrong row is never chosen.
        """
        return self._encoded([f"{alias}.{quote_ident(c.name)}" for c in self.columns])

    def encoded_content(self, alias: str) -> str:
        """The same for a row with the columns c0, c1, ..."""
        return self._encoded([f"{alias}.c{i}" for i in range(len(self.columns))])

    def _encoded(self, values: Sequence[str]) -> str:
        texts = ", ".join(as_text(value, c.base) for value, c in zip(values, self.columns, strict=True))
        return f'ARRAY[{texts}]::text[]::text COLLATE "C"'


def text_hash(text: str) -> str:
    return f'pg_catalog.hashtextextended({text} COLLATE "C", 0)'


def same_image(pairs: Iterable[tuple[str, str, int]]) -> str:
    """A condition: two values (two expressions and their type, domains resolved) have the same bytes, or both are NULL.
    Values of user-defined types are compared by their texts, because their bytes may contain padding."""
    images, texts = [], []
    for left, right, base in pairs:
        if base < FIRST_OF_USERS:
            images.append((left, right))
        else:
            texts.append(f"{as_text(left, base)} IS NOT DISTINCT FROM {as_text(right, base)}")
    if images:
        left, right = (f"ROW({', '.join(side)})" for side in zip(*images, strict=True))
        texts.insert(0, f"pg_catalog.record_image_eq({left}, {right})")
    return " AND ".join(texts) or "true"


def is_empty(conn: Connection, table: str) -> bool:
    row = conn.execute(f"SELECT NOT EXISTS (SELECT FROM {table})").fetchone()
    return bool(row and row[0])


def reshape(conn: Connection, target: Target) -> None:
    """Alters the table before a load: the columns of the definition, and the hidden column of regions."""
    conn.execute("SELECT pgtrickle._reshape(%s)", (target.pgt_id,))
    has_region = any(c.name == REGION for c in target.columns)
    row = conn.execute(statement("has_column"), {"table": target.table, "column": REGION}).fetchone()
    if row is None or bool(row[0]) == has_region:
        return
    if has_region:
        conn.execute(f'ALTER TABLE {target.table} ADD COLUMN {quote_ident(REGION)} text COLLATE "C"')
    else:
        conn.execute(f"ALTER TABLE {target.table} DROP COLUMN {quote_ident(REGION)}")
