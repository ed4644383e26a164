"""Mirrors of several origins: read side by side, written together, and none held up by another origin's trouble."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from pgtrickle.errors import EngineLostError
from pgtrickle.mirror import manage as mirroring
from pgtrickle.mirror.refresh import MirrorRefresher
from pgtrickle.pipeline.engine.spark import SparkEngine
from tests.conftest import Database
from tests.elsewhere import Elsewhere
from tests.line import Line

Make = Callable[[], Database]


@pytest.fixture
def fleet(make_installed: Make, make_database: Make, make_line: Callable[..., Line]) -> Elsewhere:
    home, first, second = make_installed(), make_installed(), make_installed()
    for other in (first, second):
        other.sql("CREATE TABLE t (a int, v text); INSERT INTO t SELECT i, 'v' || i FROM generate_series(1, 20) AS i")
    fleet = Elsewhere(home, make_line(home), [first, second], make_database)
    for number in range(2):
        fleet.create(f"copy_{number}", f"SELECT a, v FROM {{{number}}}.public.t")
    fleet.settle()
    return fleet


def mirror_of(fleet: Elsewhere, number: int) -> int:
    name = fleet.others[number].name
    return int(fleet.home.sql("SELECT pgt_id FROM pgtrickle.pgt_mirrors WHERE origin_database = %s", name)[0][0])


def written(fleet: Elsewhere, number: int) -> tuple[str, int]:
    """The transaction that moved a mirror last, and the rows of the mirror."""
    mirror = mirror_of(fleet, number)
    ((xid,),) = fleet.home.sql("SELECT xmin::text FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s", mirror)
    ((rows,),) = fleet.home.sql(f"SELECT count(*) FROM pgtrickle_changes.mirror_{mirror}")
    return xid, rows


def change(fleet: Elsewhere) -> None:
    for other in fleet.others:
        other.sql("INSERT INTO t VALUES (100, NULL); UPDATE t SET v = 'w' WHERE a = 3")


def test_they_are_written_together(fleet: Elsewhere) -> None:
    change(fleet)
    fleet.line.tick()
    (first, rows), (second, others) = written(fleet, 0), written(fleet, 1)
    assert first == second
    assert rows == others == 21
    fleet.settle()
    for number in range(2):
        fleet.check(f"copy_{number}")


def test_one_that_fails_fails_alone(fleet: Elsewhere) -> None:
    """A row was taken away by hand, which its change then does not find."""
    before = written(fleet, 0)[0]
    fleet.home.sql(f"DELETE FROM pgtrickle_changes.mirror_{mirror_of(fleet, 0)} WHERE a = 3")
    change(fleet)
    outcomes = fleet.line.tick()
    failed = [o for o in outcomes if o.error is not None]
    assert [o.table.pgt_id for o in failed] == [mirror_of(fleet, 0)]
    assert "had to be deleted" in str(failed[0].error)
    assert written(fleet, 1)[1] == 21
    fleet.check("copy_1")
    fleet.settle()
    assert written(fleet, 0)[0] != before
    fleet.check("copy_0", action=None)


def test_one_that_is_stuck_delays_no_other(fleet: Elsewhere) -> None:
    change(fleet)
    first, _ = fleet.others
    outcomes: list[object] = []
    turn = threading.Thread(target=lambda: outcomes.extend(fleet.line.tick()))
    with first.connect(autocommit=False) as holder:
        holder.execute("LOCK TABLE pgtrickle.pgt_readers IN ACCESS EXCLUSIVE MODE")
        turn.start()
        deadline = time.monotonic() + 60
        while written(fleet, 1)[1] != 21 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (written(fleet, 0)[1], written(fleet, 1)[1]) == (20, 21)
        assert turn.is_alive()
    turn.join(60)
    assert not turn.is_alive()
    assert written(fleet, 0)[1] == 21
    fleet.settle()
    for number in range(2):
        fleet.check(f"copy_{number}")


def lost(*_: object) -> int:
    raise EngineLostError("Spark has gone")


@pytest.mark.parametrize(
    ("whose", "what"), [(SparkEngine, "parallelism"), (MirrorRefresher, "_compute")], ids=["in a load", "before"]
)
def test_spark_that_is_lost_is_not_an_origin_that_is_away(
    fleet: Elsewhere, monkeypatch: pytest.MonkeyPatch, whose: type, what: str
) -> None:
    monkeypatch.setattr(mirroring, "MirrorRefresher", partial(MirrorRefresher, bulk_bytes=0))
    monkeypatch.setattr(whose, what, lost)
    first, _ = fleet.others
    first.sql("TRUNCATE t; INSERT INTO t VALUES (1, 'one')")
    outcomes = fleet.line.tick()
    assert [type(o.error) for o in outcomes if o.table.pgt_id == mirror_of(fleet, 0)] == [EngineLostError]
    assert fleet.home.sql(
        "SELECT last_error_message, consecutive_errors FROM pgtrickle.pgt_stream_tables WHERE pgt_id = %s",
        mirror_of(fleet, 0),
    ) == [(None, 0)]
