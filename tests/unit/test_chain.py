"""Which tables of a chain move in its transaction, and which do not."""

from __future__ import annotations

from pgtrickle.errors import DefinitionError
from pgtrickle.refresh.chain import ChainProgress, level_stage
from pgtrickle.refresh.job import Outcome
from tests.unit.test_decide import stream_table


def test_a_table_waits_for_what_it_reads() -> None:
    progress = ChainProgress().with_outcome(Outcome(stream_table(1), "FULL", error=DefinitionError("x")))
    tables = [stream_table(2, reads=(101,)), stream_table(3, reads=(900,))]
    stage = level_stage(tables, progress, is_first=False)
    assert ([t.pgt_id for t in stage.going], [t.pgt_id for t in stage.waiting]) == ([3], [2])
    progress = progress.with_level(stage)
    assert progress.held == {101, 102}
    assert progress.later == ()  # it waits until the other one is repaired


def test_what_reads_a_table_that_moves_later_moves_later_too() -> None:
    progress = ChainProgress().postponed([stream_table(1)])
    progress = progress.with_level(level_stage([stream_table(2, reads=(101,))], progress, is_first=False))
    assert progress.later == (1, 2)
    assert progress.held == {101, 102}


def test_an_authors_session_reads_only_at_the_first_level() -> None:
    table = stream_table(1, run_as="author")
    assert level_stage([table], ChainProgress(), is_first=True).going == (table,)
    stage = level_stage([table], ChainProgress(), is_first=False)
    assert (stage.going, stage.apart) == ((), (table,))
    assert ChainProgress().with_level(stage).later == (1,)


def test_a_table_that_moved_holds_nothing() -> None:
    progress = ChainProgress().with_outcome(Outcome(stream_table(1), "DIFFERENTIAL"))
    assert (len(progress.outcomes), progress.held, progress.later) == (1, frozenset(), ())
