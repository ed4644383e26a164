"""All attempts, by what they go after."""

from __future__ import annotations

from dataclasses import replace

from tests.security.attempt import Attempt
from tests.security.attempts import author, builtin, code, internals, names, others, relations, rights, types

# Most of these stay until the end, which takes its time: once per version, and once per kind of role that installed.
_LONG = (rights, relations, author, others, names)

ATTEMPTS: tuple[Attempt, ...] = (
    *types.ATTEMPTS,
    *code.ATTEMPTS,
    *builtin.ATTEMPTS,
    *internals.ATTEMPTS,
    *(replace(attempt, everywhere=False) for family in _LONG for attempt in family.ATTEMPTS),
)
