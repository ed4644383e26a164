"""All attempts, by what they go after."""

from __future__ import annotations

import os
from dataclasses import replace

from tests.security.attempt import EVERYWHERE, Attempt
from tests.security.attempts import (
    administrators,
    author,
    builtin,
    code,
    elsewhere,
    failures,
    internals,
    names,
    others,
    relations,
    rights,
    types,
)

# What stays until the end takes its time: where it may depend on them, once per version and per kind of role that installed.
# EVERY_ARENA=1 (make test-long) makes all attempts in all four arenas.
_EVERY = bool(os.environ.get("EVERY_ARENA"))
_TWICE = EVERYWHERE if _EVERY else ("18-ordinary", "15-superuser")
_ON_15 = EVERYWHERE if _EVERY else _TWICE[1:]
_ON_18 = EVERYWHERE if _EVERY else _TWICE[:1]

ATTEMPTS: tuple[Attempt, ...] = (
    *types.ATTEMPTS,
    *code.ATTEMPTS,
    *builtin.ATTEMPTS,
    *internals.ATTEMPTS,
    *failures.ATTEMPTS,
    *administrators.ATTEMPTS,
    *(replace(attempt, arenas=_TWICE) for family in (rights, relations, author) for attempt in family.ATTEMPTS),
    *(replace(attempt, arenas=_ON_15) for attempt in others.ATTEMPTS),
    *(replace(attempt, arenas=_ON_18) for family in (names, elsewhere) for attempt in family.ATTEMPTS),
)
