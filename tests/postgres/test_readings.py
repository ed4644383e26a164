"""What has changed at an origin, read once for readers that stand at different cuts."""

from __future__ import annotations

import pytest

from pgtrickle.db import connect
from pgtrickle.db.catalog import read_moment
from pgtrickle.model.flow import Cut
from pgtrickle.runtime.readings import Want, read
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
        wants = [Want((str(number), 1), relid, (1,), cut) for number, cut in enumerate(cuts)]
        reading = read(conn, wants[::order])
    seen = [sorted(row for _, row in reading.signed(want)) for want in wants if reading.serves(want)]
    assert seen == [["{2}", "{4}"], ["{4}"]]
