"""Judges by what the author's own session answers to the text that the author wrote.

Rows are compared both ways by PostgreSQL there, with the equality of their types; texts as well, where they are
determined; and where one of several equal values is shown, it has to be one that a table has. `pgtrickle verify` has to
say the same in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from pgtrickle.errors import PgtrickleError
from pgtrickle.maintain.verify import VerifyResult, verify_tables
from tests.fuzz import wave
from tests.fuzz.equality.case import TypesCase
from tests.fuzz.equality.kinds import OUTPUT
from tests.fuzz.equality.queries import EXACT, POOL
from tests.fuzz.equality.server import Kept, TypesServer, set_up
from tests.fuzz.wave import ERROR, FAILURES, MISMATCH, OK, Verdict


def run(server: TypesServer, case: TypesCase) -> dict[str, Verdict]:
    return wave.run(lambda: server.open(case), case, judge=TypesRun)


class TypesRun(wave.Run):
    line: Kept
    case: TypesCase

    def run(self, *, renames: bool = False) -> dict[str, Verdict]:
        self._types: dict[str, str] = {}
        verdicts = super().run(renames=renames)
        self._verify([name for name, v in verdicts.items() if v.status == OK])
        return verdicts

    def _owner(self) -> psycopg.Connection[Any]:
        return self.line.owner

    def _set_up(self) -> None:
        set_up(self.line.owner, self.case)

    def _ask(self, name: str, text: str, *, timeout_ms: int = 0) -> list[tuple[Any, ...]]:
        return self.line.of(self.case.author(name)).sql(text, timeout_ms=timeout_ms)

    def _table(self, name: str) -> str:
        return f"{OUTPUT}.{name}"

    def _define(self, name: str, mode: str) -> None:
        session = self.line.of(self.case.author(name), creates=True)
        text = "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s)"
        session.sql(text, self._table(name), self.queries[name], mode)
        if name in dict(self.case.bases):
            self.line.sql(f"GRANT SELECT ON {self._table(name)} TO PUBLIC")

    def _difference(self, name: str) -> str | None:
        session = self.line.of(self.case.author(name))
        columns = self._columns(name)
        if name not in self._types:
            self._types[name] = self._other_types(name, columns)
        if self._types[name]:
            return self._types[name]
        texts = self.case.text(name)
        exact = [_quoted(c) for c in columns if texts.get(c) == EXACT]
        pools = dict(self.case.pools)
        shown = [(_quoted(c), texts[c].partition(":")[2]) for c in columns if texts.get(c, "").startswith(POOL)]
        numbers = ["(SELECT count(*) FROM (TABLE wanted EXCEPT ALL TABLE have) AS m)"]
        numbers += ["(SELECT count(*) FROM (TABLE have EXCEPT ALL TABLE wanted) AS e)"]
        row = f"ROW({', '.join(exact)})::text"
        for first, second in (("wanted", "have"), ("have", "wanted")):
            same = f"SELECT {row} FROM {first} EXCEPT ALL SELECT {row} FROM {second}"
            numbers.append(f"(SELECT count(*) FROM ({same}) AS t)" if exact else "0")
        stray = [
            f"(SELECT count(*) FROM (SELECT {c}::text FROM have WHERE {c} IS NOT NULL EXCEPT ({pools[of]})) AS s)"
            for c, of in shown
            if of in pools
        ]
        numbers.append(" + ".join(stray) or "0")
        listed = ", ".join(map(_quoted, columns))
        ((missing, extra, unlike, other, strays),) = session.sql(
            f"WITH wanted AS MATERIALIZED ({self.queries[name]}), "
            f"have AS MATERIALIZED (SELECT {listed} FROM {self._table(name)}) SELECT {', '.join(numbers)}"
        )
        if missing or extra:
            return f"{missing} rows missing, {extra} too many"
        if unlike or other:
            return f"{unlike} rows are written otherwise"
        return f"{strays} values are written as in no table" if strays else None

    def _other_types(self, name: str, columns: Sequence[str]) -> str:
        session = self.line.of(self.case.author(name))
        wanted = session.run(f"SELECT * FROM ({self.queries[name]}) AS q LIMIT 0").description or []
        listed = ", ".join(map(_quoted, columns))
        have = session.run(f"SELECT {listed} FROM {self._table(name)} LIMIT 0").description or []
        pairs = [(w.name, w.type_code, h.name, h.type_code) for w, h in zip(wanted, have, strict=True)]
        other = [p for p in pairs if p[:2] != p[2:]]
        return f"columns of other types: {other}" if other else ""

    def _verify(self, names: Sequence[str]) -> None:
        """Of tables that are right. One that is wrong fails already; that verify misses it is said with it."""
        wrong = [n for n, v in self.verdicts.items() if v.status == MISMATCH and v.round == len(self.case.rounds)]
        asked = [*names, *wrong]
        try:
            results = verify_tables(self.line.dsn, [f"Out put.{name}" for name in asked], timeout_seconds=1)
        except (PgtrickleError, psycopg.Error):
            for name in asked:  # one by one, to see which it is
                self._verify_one(name)
            return
        for name, result in zip(asked, results, strict=True):
            self._compare(name, result)

    def _verify_one(self, name: str) -> None:
        try:
            (result,) = verify_tables(self.line.dsn, [f"Out put.{name}"], timeout_seconds=1)
        except (PgtrickleError, psycopg.Error) as error:
            told = error.one_line() if isinstance(error, PgtrickleError) else str(error)
            self.verdicts[name].fail(ERROR, f"verify: {told}", len(self.case.rounds))
        else:
            self._compare(name, result)

    def _compare(self, name: str, result: VerifyResult) -> None:
        verdict = self.verdicts[name]
        if verdict.status in FAILURES:
            verdict.detail += "; verify says ok" if result.ok else ""
        elif not result.ok:
            told = f"verify finds {result.missing} missing, {result.extra} too many"
            verdict.fail(MISMATCH, told, len(self.case.rounds))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
