"""Cases whose tables have the option engine => 'spark': full refreshes and deltas are evaluated there.

A query that Spark refuses is given to PostgreSQL, and counted with the construct that stands in the way. Every fifth
query is also a stream table with engine => 'postgres', and both must have the same rows after each round.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.refresh.job import Outcome
from tests.fuzz.case import Case
from tests.fuzz.wave import FAILURES, MISMATCH, OK, REJECTED, Run, Verdict
from tests.line import Line

REFUSED = "Spark cannot evaluate"
SPARK, POSTGRES = "spark", "postgres"
TWIN_EVERY = 5


class SparkRun(Run):
    """`Verdict.engine` is spark if every refresh of the query ran there; otherwise why not."""

    def __init__(self, line: Line, case: Case) -> None:
        super().__init__(line, case)
        self.twins = {name: f"{name}_{POSTGRES}" for name, _ in case.queries[::TWIN_EVERY]}
        for name, twin in self.twins.items():
            self.queries[twin] = self.queries[name]
            self.verdicts[twin] = Verdict()

    def run(self, *, renames: bool) -> dict[str, Verdict]:
        found = super().run(renames=renames)
        rows = self.line.sql(
            "SELECT st.pgt_name, h.engine, pgtrickle._reason_text(h.engine_reason_code, h.engine_reason_params) "
            "FROM pgtrickle.pgt_refresh_history AS h JOIN pgtrickle.pgt_stream_tables AS st USING (pgt_id) "
            "WHERE h.action <> 'NO_DATA' AND h.engine IS NOT NULL ORDER BY h.refresh_id"
        )
        for name, engine, reason in rows:
            verdict = found[name]
            if verdict.engine in ("", SPARK):
                verdict.engine = SPARK if engine == SPARK else reason or engine
        for name, twin in self.twins.items():
            of_twin = found.pop(twin)
            if of_twin.failed:
                found[name].fail(of_twin.status, f"with engine {POSTGRES}: {of_twin.detail}", of_twin.round)
        return found

    def _made(self, names: Sequence[str]) -> list[str]:
        return super()._made([*names, *(self.twins[name] for name in names if name in self.twins)])

    def _define(self, name: str, mode: str) -> None:
        self.line.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => %s)",
            name,
            self.queries[name],
            mode,
            POSTGRES if name in self.twins.values() else SPARK,
        )

    def _judge(self, names: Sequence[str], number: int) -> None:
        super()._judge(names, number)
        for name, twin in self.twins.items():
            if all(each in names and self.verdicts[each].status == OK for each in (name, twin)):
                self._compare(name, twin, number)

    def _compare(self, name: str, twin: str, number: int) -> None:
        listed = ", ".join(self._columns(name))
        sides = f"SELECT {listed} FROM {name}", f"SELECT {listed} FROM {twin}"
        ((only_spark, only_postgres),) = self.line.sql(
            f"SELECT (SELECT count(*) FROM ({sides[0]} EXCEPT ALL {sides[1]}) AS s), "
            f"(SELECT count(*) FROM ({sides[1]} EXCEPT ALL {sides[0]}) AS p)"
        )
        if only_spark or only_postgres:
            detail = f"{only_spark} rows only with engine {SPARK}, {only_postgres} only with engine {POSTGRES}"
            self.verdicts[name].fail(MISMATCH, detail, number)

    def _is_refusal(self, outcome: Outcome) -> bool:
        return super()._is_refusal(outcome) or (outcome.error is not None and REFUSED in outcome.error.message)

    def _fall_back(self, names: Sequence[str]) -> None:
        super()._fall_back(names)
        refused = self._refused(names)
        for name, message in refused.items():
            self.verdicts[name].engine = message
            self.line.sql("SELECT pgtrickle.alter_stream_table(%s, engine => 'postgres')", self._table(name))
            self.line.sql("SELECT pgtrickle.resume_stream_table(%s)", self._table(name))
        if refused:
            self._turn(0)
            super()._fall_back(names)

    def _is_known(self, message: str) -> bool:
        return REFUSED in message

    def _refused(self, names: Sequence[str]) -> dict[str, str]:
        rows = self.line.sql(
            "SELECT pgt_name, last_error_message FROM pgtrickle.pgt_stream_tables WHERE status = 'ERROR'"
        )
        found = {str(name): str(message) for name, message in rows if name in names and REFUSED in (message or "")}
        return {name: m for name, m in found.items() if self.verdicts[name].status not in (*FAILURES, REJECTED)}
