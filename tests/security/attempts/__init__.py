"""All attempts, by what they go after."""

from __future__ import annotations

from tests.security.attempt import Attempt
from tests.security.attempts import author, builtin, code, internals, names, others, relations, rights, types

ATTEMPTS: tuple[Attempt, ...] = (
    *types.ATTEMPTS,
    *code.ATTEMPTS,
    *builtin.ATTEMPTS,
    *rights.ATTEMPTS,
    *relations.ATTEMPTS,
    *author.ATTEMPTS,
    *others.ATTEMPTS,
    *names.ATTEMPTS,
    *internals.ATTEMPTS,
)
