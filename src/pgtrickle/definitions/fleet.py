"""Which databases a set concerns, and its plan and application in each of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pgtrickle.db import statement, translated
from pgtrickle.db.connect import TRANSACTION, connect
from pgtrickle.db.discover import in_database
from pgtrickle.definitions.apply_set import apply_set
from pgtrickle.definitions.changes import ApplyResult
from pgtrickle.definitions.definition import Definition, DefinitionProblem, DefinitionSet, GroupDefinition
from pgtrickle.definitions.present import require_ready
from pgtrickle.definitions.tables import Policy
from pgtrickle.errors import ConfigError, PgtrickleError, RefusedError, TransientError

if TYPE_CHECKING:
    from pgtrickle.db import Connection


@dataclass(frozen=True, slots=True)
class TargetDatabase:
    """A database and what the set defines for it. `named`: by its own name, not only by a glob."""

    database: str
    definitions: tuple[Definition, ...] = ()
    groups: tuple[GroupDefinition, ...] = ()
    named: bool = False

    @property
    def concerned(self) -> bool:
        """False: the database is read only to find stream tables that the set created there before."""
        return bool(self.definitions or self.groups)


@dataclass(frozen=True, slots=True)
class Databases:
    """The databases of a server, and those that a pattern selects: by name or by glob."""

    existing: tuple[str, ...]
    own: str
    only: tuple[str, ...] = ()

    def of(self, patterns: Sequence[str]) -> dict[str, bool]:
        """Database -> whether it was named explicitly. Without patterns: those of --database, or that of the DSN."""
        selected: dict[str, bool] = {}
        for pattern in patterns or self.only or (self.own,):
            if self._is_name(pattern):
                selected[pattern] = True  # if there is no such database, connecting to it fails
            else:
                selected = {name: False for name in self.existing if fnmatchcase(name, pattern)} | selected
        return {name: named for name, named in selected.items() if self.allows(name)}

    def allows(self, name: str) -> bool:
        return not self.only or any(name == pattern or fnmatchcase(name, pattern) for pattern in self.only)

    def unmatched(self, patterns: Sequence[str]) -> str | None:
        """A glob that matches nothing is probably an error, and dangerous with --prune."""
        for pattern in patterns:
            if not self._is_name(pattern) and not any(fnmatchcase(name, pattern) for name in self.existing):
                return pattern
        return None

    def _is_name(self, pattern: str) -> bool:
        return pattern in self.existing or not re.search(r"[*?\[]", pattern)


def databases(dsn: str, only: Sequence[str]) -> Databases:
    """Databases to which the role of the DSN may connect."""
    with connect(dsn, role="apply", pooler=TRANSACTION, as_service=False) as conn, translated():
        existing = tuple(name for _, name, _ in conn.execute(statement("databases")).fetchall())
        known = Databases(existing, conn.info.dbname, tuple(only))
    if (pattern := known.unmatched(only)) is not None:
        raise ConfigError(f"no database matches --database {pattern}", hint=f"there are {', '.join(existing)}")
    return known


def targets(
    definition_set: DefinitionSet, known: Databases, *, everywhere: bool
) -> tuple[list[TargetDatabase], list[DefinitionProblem]]:
    """The databases of the set, by name; `everywhere`: also those where it may have created stream tables before."""
    items: list[Definition | GroupDefinition] = [*definition_set.definitions, *definition_set.groups]
    problems = [
        DefinitionProblem(item.at, f"no database matches {pattern}", f"there are {', '.join(known.existing)}")
        for item in items
        if (pattern := known.unmatched(item.databases or definition_set.databases)) is not None
    ]
    definitions = [(d, known.of(d.databases or definition_set.databases)) for d in definition_set.definitions]
    groups = [(g, known.of(g.databases or definition_set.databases)) for g in definition_set.groups]
    chosen: dict[str, bool] = dict.fromkeys((n for n in known.existing if known.allows(n)), False) if everywhere else {}
    for _, selected in (*definitions, *groups):
        for name, named in selected.items():
            chosen[name] = named or chosen.get(name, False)
    return [
        TargetDatabase(
            name,
            tuple(d for d, selected in definitions if name in selected),
            tuple(g for g, selected in groups if name in selected),
            named,
        )
        for name, named in sorted(chosen.items())
    ], problems


@dataclass(frozen=True, slots=True)
class PlannedApply:
    """The plan of a set in each database that it concerns. `carry_out` executes it."""

    dsn: str
    definition_set: DefinitionSet
    policy: Policy
    databases: tuple[tuple[TargetDatabase, ApplyResult], ...]

    @property
    def results(self) -> list[ApplyResult]:
        return [result for _, result in self.databases]

    @property
    def has_changes(self) -> bool:
        return any(result.changes for _, result in self.databases)

    def carry_out(self) -> list[ApplyResult]:
        return [
            carry_out(self.dsn, self.definition_set, target, self.policy, result) if result.changes else result
            for target, result in self.databases
        ]


def plan_all(
    dsn: str, definition_set: DefinitionSet, targets: Sequence[TargetDatabase], policy: Policy
) -> PlannedApply:
    planned = [(target, plan(dsn, definition_set, target, policy)) for target in targets]
    concerned = tuple((target, result) for target, result in planned if result is not None)
    return PlannedApply(dsn, definition_set, policy, concerned)


def plan(dsn: str, definition_set: DefinitionSet, target: TargetDatabase, policy: Policy) -> ApplyResult | None:
    """The plan for one database; changes nothing. None: the set does not concern it."""
    return _run(dsn, definition_set, target, policy, None)


def carry_out(
    dsn: str, definition_set: DefinitionSet, target: TargetDatabase, policy: Policy, planned: ApplyResult
) -> ApplyResult:
    """Applies the plan in one transaction; refuses if the plan would be different now."""
    done = _run(dsn, definition_set, target, policy, planned)
    return done if done is not None else planned


def _run(
    dsn: str, definition_set: DefinitionSet, target: TargetDatabase, policy: Policy, planned: ApplyResult | None
) -> ApplyResult | None:
    warnings: list[str] = []
    entered = False
    try:
        with (
            connect(in_database(dsn, target.database), role="apply", pooler=TRANSACTION, as_service=False) as conn,
            translated(),
        ):
            if not require_ready(conn):
                if target.named:
                    raise ConfigError("pgtrickle is not installed", hint="run pgtrickle install for this database")
                warning = "pgtrickle is not installed here, nothing is applied"
                return ApplyResult(target.database, warnings=(warning,)) if target.concerned else None
            entered = True
            with conn.transaction(force_rollback=planned is None), _collect_warnings(conn, warnings):
                result = apply_set(
                    conn, definition_set.name, target.definitions, target.groups, policy, dry=planned is None
                )
                if planned is not None and result.changes != planned.changes:
                    raise TransientError("the database has changed since the plan was made", hint="make a new plan")
    except PgtrickleError as error:
        if not entered and not target.concerned:
            return ApplyResult(target.database, warnings=(f"cannot be read: {error.one_line()}",))
        errors = error.errors if isinstance(error, RefusedError) else (error,)
        return ApplyResult(
            target.database, errors=tuple(e.one_line() for e in errors), transient=isinstance(error, TransientError)
        )
    return ApplyResult(
        target.database,
        result.changes,
        result.unchanged,
        result.left,
        tuple(dict.fromkeys((*warnings, *result.warnings))),
        applied=planned is not None,
    )


@contextmanager
def _collect_warnings(conn: Connection, into: list[str]) -> Iterator[None]:
    """Appends the warnings of PostgreSQL to `into`."""

    def note(notice: object) -> None:
        if getattr(notice, "severity_nonlocalized", None) == "WARNING":
            into.append(str(getattr(notice, "message_primary", "")))

    conn.add_notice_handler(note)
    try:
        yield
    finally:
        conn.remove_notice_handler(note)
