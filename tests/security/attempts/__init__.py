"""All attempts, by what they go after."""

from __future__ import annotations

from dataclasses import replace

from tests.security.attempt import Attempt
from tests.security.attempts import (
    administrators,
    author,
    builtin,
    code,
    failures,
    internals,
    names,
    others,
    relations,
    rights,
    types,
)

# What stays until the end takes its time: where it may depend on them, once per version and per kind of role that installed.
_TWICE = ("18-ordinary", "15-superuser")

ATTEMPTS: tuple[Attempt, ...] = (
    *types.ATTEMPTS,
    *code.ATTEMPTS,
    *builtin.ATTEMPTS,
    *internals.ATTEMPTS,
    *failures.ATTEMPTS,
    *administrators.ATTEMPTS,
    *(replace(attempt, arenas=_TWICE) for family in (rights, relations, author) for attempt in family.ATTEMPTS),
    *(replace(attempt, arenas=_TWICE[1:]) for attempt in others.ATTEMPTS),
    *(replace(attempt, arenas=_TWICE[:1]) for attempt in names.ATTEMPTS),
)
