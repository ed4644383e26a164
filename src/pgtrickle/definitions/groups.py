"""The refresh groups of one set in one database."""

from __future__ import annotations

from collections.abc import Iterable

from pgtrickle.db import Connection, statement
from pgtrickle.definitions import present
from pgtrickle.definitions.changes import ADOPT, ALTER, CREATE, DROP, REFRESH_GROUP, Change, OptionChange
from pgtrickle.definitions.definition import FilePosition, GroupDefinition
from pgtrickle.definitions.present import StoredGroup, errors_at
from pgtrickle.errors import DefinitionError


class GroupWork:
    """Changed groups are dropped first: a stream table is in at most one group, and may move to another."""

    def __init__(
        self, conn: Connection, set_name: str, groups: Iterable[GroupDefinition], *, prune: bool, adopt: bool
    ) -> None:
        self.conn = conn
        self.set_name = set_name
        self.prune = prune
        self.adopt = adopt
        self.current = present.groups(conn)
        self.groups: dict[str, tuple[GroupDefinition, tuple[str, ...]]] = {}
        for group in groups:
            if group.name in self.groups:
                first = self.groups[group.name][0].at
                raise DefinitionError(f"{group.at}: refresh group {group.name} is already defined in {first}")
            with errors_at(group.at):
                self.groups[group.name] = (group, self._members(group))
        self.changes: list[Change] = []
        self.unchanged = 0
        self.waiting: list[tuple[GroupDefinition, str | None]] = []

    def members(self) -> dict[str, FilePosition]:
        """The members of all groups, and where a file defines the group."""
        return {member: group.at for group, members in self.groups.values() for member in members}

    def begin(self) -> None:
        for name, (group, members) in self.groups.items():
            current = self.current.get(name)
            owner = current.applied_from if current is not None and not self.adopt else self.set_name
            if current is not None and (current.members, current.isolation) == (members, _isolation(group)):
                if owner == current.applied_from:
                    self.unchanged += 1
                else:
                    self.conn.execute("SELECT pgtrickle._note_group_applied(%s, %s)", [name, owner])
                    self.changes.append(Change(ADOPT, name, REFRESH_GROUP, group.at.path))
                continue
            if owner not in (None, self.set_name):
                raise DefinitionError(
                    f"{group.at}: refresh group {name} belongs to the set {owner}",
                    hint=f"remove it there, or adopt it into {self.set_name} with --adopt",
                )
            if current is not None:
                with errors_at(group.at):
                    self._drop(name)
            self.changes.append(_change(CREATE if current is None else ALTER, group, members, current))
            self.waiting.append((group, owner))
        for current in self.current.values() if self.prune else ():
            if current.applied_from == self.set_name and current.name not in self.groups:
                self._drop(current.name)
                self.changes.append(Change(DROP, current.name, REFRESH_GROUP))

    def finish(self) -> None:
        for group, owner in self.waiting:
            with errors_at(group.at):
                self.conn.execute(
                    "SELECT pgtrickle.create_refresh_group(%s, %s, %s)",
                    [group.name, list(group.members), group.isolation],
                )
                if owner is not None:
                    self.conn.execute("SELECT pgtrickle._note_group_applied(%s, %s)", [group.name, owner])

    def _members(self, group: GroupDefinition) -> tuple[str, ...]:
        rows = self.conn.execute(statement("definitions_members"), {"names": list(group.members)}).fetchall()
        return tuple(name for (name,) in rows)

    def _drop(self, name: str) -> None:
        self.conn.execute("SELECT pgtrickle.drop_refresh_group(%s)", [name])


def _isolation(group: GroupDefinition) -> str:
    return group.isolation.strip().lower().replace(" ", "_")


def _change(action: str, group: GroupDefinition, members: tuple[str, ...], current: StoredGroup | None) -> Change:
    before = ("", "") if current is None else (", ".join(current.members), current.isolation)
    after = (", ".join(members), _isolation(group))
    options = tuple(
        OptionChange(key, old or None, new)
        for key, old, new in zip(("members", "isolation"), before, after, strict=True)
        if old != new
    )
    return Change(action, group.name, REFRESH_GROUP, group.at.path, options)
