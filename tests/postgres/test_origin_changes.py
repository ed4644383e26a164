"""What has changed at an origin, read once for readers that stand at different cuts."""

from __future__ import annotations

import time

import pytest

from pgtrickle.db import connect
from pgtrickle.db.catalog import read_moment
from pgtrickle.model.flow import Cut
from pgtrickle.origin import changes as module
from pgtrickle.origin.changes import KEEP_SECONDS, MirrorRequest, OriginReader, read
from tests.conftest import Database
from tests.postgres.rows import capture


@pytest.mark.parametrize("order", [1, -1])
def test_cuts_between_the_same_bounds_are_told_apart(db: Database, order: int) -> None:
    """A transaction ended between them, and none that is later than all others: xmin and xmax are the same."""
    relid = capture(db)
    first, second = db.connect(), db.connect()
    first.autocommit = second.autocommit = False
    first.execute("INSERT INTO t VALUES (1)")
    second.execute("INSERT INTO t VALUES (2)")
    db.sql("INSERT INTO t VALUES (3)")
    with connect(db.dsn, role="test", autocommit=True) as conn:
        cuts: list[Cut] = []
        for _ in range(2):
            cuts.append(read_moment(conn).cut)
            second.commit()
        assert len({(c.xmin, c.xmax) for c in cuts}) == 1
        db.sql("INSERT INTO t VALUES (4)")
        wants = [MirrorRequest((str(number), 1), relid, (1,), cut) for number, cut in enumerate(cuts)]
        reading = read(conn, wants[::order])
    seen = [sorted(row for _, row in reading.signed(want)) for want in wants if reading.serves(want)]
    assert seen == [["{2}", "{4}"], ["{4}"]]


def test_what_does_not_fit_into_memory_is_not_fetched(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2_000)
    relid = capture(db)
    with connect(db.dsn, role="test", autocommit=True) as conn:
        want = MirrorRequest(("1/1", 1), relid, (1,), read_moment(conn).cut)
        db.sql("INSERT INTO t SELECT * FROM generate_series(1, 300)")
        assert read(conn, [want]).serves(want)
        db.sql("INSERT INTO t SELECT * FROM generate_series(1, 10000)")
        assert not read(conn, [want]).serves(want)
        assert conn.execute("SELECT 1").fetchone() == (1,)


def test_what_others_want_and_is_gone_is_not_ours_to_answer_for(db: Database) -> None:
    relid = capture(db)
    with connect(db.dsn, role="test", autocommit=True) as conn:
        cut = read_moment(conn).cut
        db.sql("INSERT INTO t VALUES (1)")
        mine, theirs = MirrorRequest(("1/1", 1), relid, (1,), cut), MirrorRequest(("1/2", 1), relid, (77,), cut)
        readings = OriginReader()
        readings.moved([theirs], cut)
        assert readings.get(conn, [mine], time.monotonic()).serves(mine)
        readings.let_go(time.monotonic())
        assert readings.find([mine], 0.0) is not None
        readings.let_go(time.monotonic() + KEEP_SECONDS + 1)
        assert readings.find([mine], 0.0) is None
