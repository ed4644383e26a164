"""Cases whose tables have the option engine => 'spark': full refreshes and deltas are evaluated there.

A query that Spark refuses is given to PostgreSQL, and counted with the construct that stands in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgtrickle.refresh.job import Outcome
from tests.fuzz.wave import FAILURES, REJECTED, Run, Verdict

REFUSED = "Spark cannot evaluate"
SPARK = "spark"


class SparkRun(Run):
    """`Verdict.engine` is spark if every refresh of the query ran there; otherwise why not."""

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
        return found

    def _define(self, name: str, mode: str) -> None:
        self.line.sql(
            "SELECT pgtrickle.create_stream_table(%s, %s, 'calculated', %s, engine => 'spark')",
            name,
            self.queries[name],
            mode,
        )

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
