"""A hostile role owns one schema, has USAGE on schema pgtrickle, and tries what it can on PostgreSQL 15, where
a superuser installed pgtrickle. Each attempt is refused or harmless: proven by what the role can read, own and
execute afterwards, and by the privileges that its code ran with."""

from __future__ import annotations

import pytest

from tests.security.arena import Arena
from tests.security.made import check_attempt

VERSION = 15
INSTALLED_BY = "superuser"

pytestmark = pytest.mark.attempts

test_attempt = check_attempt


def test_nothing_else_has_changed(arena: Arena) -> None:
    assert arena.found == []
