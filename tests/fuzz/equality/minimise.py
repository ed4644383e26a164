"""Makes a failing case small, by the first generator's minimiser; then its authors and their settings."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from tests.fuzz.case import Case
from tests.fuzz.equality.case import TypesCase, TypesWave, only
from tests.fuzz.minimise import minimise
from tests.fuzz.wave import Verdict

Runner = Callable[[TypesCase], dict[str, Verdict]]


def smallest(run: Runner, made: TypesWave, name: str, verdict: Verdict, *, seconds: float) -> tuple[TypesCase, Verdict]:
    case = only(made.types_case, name)
    number = dict(case.by)["*"]
    lone = replace(case, authors=(case.authors[number],), by=tuple((n, 0) for n, _ in case.by))
    found = run(lone)[name]
    if found.failed and found.status == verdict.status:
        case, verdict = lone, found
    until = time.monotonic() + seconds

    def try_(c: Case) -> dict[str, Verdict]:
        return run(cast("TypesCase", c))

    small = minimise(try_, replace(made, case=case), name, verdict, seconds=seconds)
    case, verdict = cast("TypesCase", small.case), small.verdict
    if len(case.authors) != 1:
        return case, verdict
    for setting in case.authors[0].settings:
        author = case.authors[0]
        less = replace(author, settings=tuple(s for s in author.settings if s != setting))
        fewer = replace(case, authors=(less,))
        if time.monotonic() > until + seconds / 2:
            break
        found = run(fewer)[case.queries[0][0]]
        if found.failed and found.status == verdict.status:
            case, verdict = fewer, found
    return case, verdict
