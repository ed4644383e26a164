"""How a role writes names: what its search_path shows goes unqualified, now and then."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from tests.fuzz.equality.kinds import NONE, SCHEMAS, Kind

_NAME = re.compile(r"@(\w+)\.(\w*)")
TWICE = frozenset({"email", "pair"})  # types that schema other has, too, as something else
_OPERATOR = re.compile(r"<(\w+):([^A-Za-z0-9\s]+)> ")


@dataclass
class Names:
    """`path`: the schemas of a role's search_path, in order, pg_catalog among them if it is named there."""

    path: tuple[str, ...]
    random: Random

    def sees(self, schema: str) -> bool:
        return not schema or SCHEMAS[schema] in self.path

    def filled(self, text: str, *, loose: bool = False) -> str:
        """`loose`: an operator that is not seen may be another one by the same sign."""

        def name(match: re.Match[str]) -> str:
            schema, word = match[1], match[2]
            free = self.sees(schema) and not (word in TWICE and self._is_hidden(SCHEMAS[schema]))
            return word if free and self.random.random() < 0.6 else f"{SCHEMAS[schema]}.{word}"

        def operator(match: re.Match[str]) -> str:
            schema, sign = match[1], match[2]
            if (self.sees(schema) or loose) and self.random.random() < 0.6:
                return f"{sign} "
            return f"OPERATOR({SCHEMAS[schema]}.{sign}) "

        return _NAME.sub(name, _OPERATOR.sub(operator, text))

    def _is_hidden(self, schema: str) -> bool:
        other = SCHEMAS["two"]
        return other in self.path and self.path.index(other) < self.path.index(schema)

    def compares(self, kind: Kind, *, exact: bool) -> bool:
        """Whether constructs that name no operator may compare values of it: where only equal values, not equal texts,
        are determined, they have to find the type's own equality."""
        return self.sees(kind.home) or (kind.without != NONE and exact)

    def table(self, schema: str, name: str, all_names: frozenset[tuple[str, str]]) -> str:
        first = next((s for s in self.path if (s, name) in all_names), None)
        if first == schema and self.random.random() < 0.6:
            return name
        return f"{schema}.{name}"
