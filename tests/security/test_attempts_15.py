"""A hostile role owns one schema, has USAGE on schema pgtrickle, and tries what it can on PostgreSQL 15. Each attempt
is refused or harmless: by what the role can read, own and execute afterwards, and by whose rights its code ran with."""

from __future__ import annotations

import pytest

from tests.security.arena import Arena
from tests.security.made import check_attempt

VERSION = 15
pytestmark = pytest.mark.timeout(400)  # all attempts are made at once, before the first test

test_attempt = check_attempt


def test_nothing_else_has_changed(arena: Arena) -> None:
    assert arena.found == []
