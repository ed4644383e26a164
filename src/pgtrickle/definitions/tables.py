"""The stream tables of one set in one database: compared, created, altered, dropped, in the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pgtrickle.db import Connection, statement, translated
from pgtrickle.db.position import line_of_error
from pgtrickle.db.session import defaulted
from pgtrickle.definitions import present
from pgtrickle.definitions.changes import ADOPT, ALTER, CREATE, DROP, REPLACE, Change
from pgtrickle.definitions.compare import Alteration, as_asked, differences, is_asked, new_query, stored
from pgtrickle.definitions.order import Name, mentions, upstream_first
from pgtrickle.definitions.present import StoredTable, placed
from pgtrickle.definitions.wanted import DEFAULTS, Definition, FilePosition, Option
from pgtrickle.errors import DefinitionError, PgtrickleError, RefusedError, TransientError
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.session import USUAL

_MISSING_COLUMN = "42703"
_MISSING = ("42P01", _MISSING_COLUMN)
_NOT_ALTERED = ("2BP01", "42809")  # others depend on its columns; it would be partitioned in another way
_PARSER = ("42", "0A")  # what the parser refuses
_WAITS = "it reads other databases and waits for validation by the control plane"


@dataclass(frozen=True, slots=True)
class Policy:
    """What apply may do in addition to creating and altering."""

    prune: bool = False
    replace: bool = False
    adopt: bool = False


class TableWork:
    """The stream tables of one set in one database."""

    def __init__(self, conn: Connection, set_name: str, definitions: Iterable[Definition], policy: Policy) -> None:
        self.conn = conn
        self.set_name = set_name
        self.policy = policy
        self.before = present.stream_tables(conn)
        self.now = dict(self.before)
        self.labels = {name: table.label for name, table in self.before.items()}
        self.wanted: dict[Name, Definition] = {}
        self.options: dict[Name, dict[str, Option]] = {}
        self.refused: dict[Name, PgtrickleError] = {}
        unnamed: list[PgtrickleError] = []
        for definition in definitions:
            try:
                name = self._name(definition)
            except DefinitionError as error:
                unnamed.append(error)
                continue
            self.wanted[name] = definition
            try:
                self.options[name] = self._checked(definition)
            except DefinitionError as error:
                self.refused[name] = error
        if unnamed:
            raise RefusedError([*unnamed, *self.refused.values()])
        self.asked = present.asked(conn)
        self.pending: set[Name] = set()  # wait for the control plane
        self.later: dict[Name, Name] = {}  # need another one that does not exist yet
        self.done: dict[Name, Change | None] = {}
        self.dropped: list[Change] = []
        self.reshaped: set[Name] = set()  # altered, with other columns from their next refresh on
        self.replaced: set[Name] = set()

    def changes(self) -> list[Change]:
        return [change for change in self.done.values() if change is not None] + self.dropped

    def put_all(self) -> None:
        """Creates and alters, upstream first. The order is a guess; a definition that comes too early is retried."""
        guess = {name: mentions(d.query, self.wanted.keys()) - {name} for name, d in self.wanted.items()}
        order = upstream_first(sorted(self.wanted), guess)
        while waiting := [
            name for name in order if not (name in self.done or name in self.refused or name in self.later)
        ]:
            early: dict[Name, PgtrickleError] = {}
            for name in waiting:
                try:
                    with translated(), self.conn.transaction():
                        change, found = self._put(name, self.wanted[name])
                except PgtrickleError as error:
                    if isinstance(error, TransientError):
                        raise
                    if error.sqlstate in _MISSING:
                        early[name] = error
                    elif error.sqlstate in _NOT_ALTERED and name in self.now:
                        self._replace([name], name, error)
                    else:
                        self.refused[name] = self._located(name, error)
                else:
                    self.done[name] = change
                    if found is not None:
                        self.now[name] = found
                    else:
                        self.pending.add(name)
            if len(early) == len(waiting):
                self._stuck(early)
        if self.refused:
            # A reader of a refused definition is not reported itself.
            causes = [e for name, e in self.refused.items() if not (guess[name] & self.refused.keys())]
            raise RefusedError(causes or list(self.refused.values()))

    def drop_rest(self, *, dry: bool, needed: Mapping[str, FilePosition]) -> tuple[str, ...]:
        """Drops what the set has created and no longer defines, downstream first; without prune only reports it."""
        rest = [n for n, t in self.now.items() if t.applied_from == self.set_name and n not in self.wanted]
        if not self.policy.prune:
            return tuple(self.labels[name] for name in rest)
        reads = present.reads(self.conn)
        for name in reversed(upstream_first(rest, reads)):
            readers = [reader for reader, read in reads.items() if name in read and reader not in rest]
            holders = sorted(self.labels.get(reader, reader[1]) for reader in readers)
            rows = self.conn.execute(statement("definitions_hold"), [self.now[name].pgt_id]).fetchall()
            holders += [description for (description,) in rows]
            if holders:
                raise DefinitionError(
                    f"{self.labels[name]} is no longer defined in a file, but {holders[0]} needs it",
                    hint=f"drop {holders[0]} first, or define {self.labels[name]} again",
                )
            if self.labels[name] in needed:
                place = needed[self.labels[name]]
                raise DefinitionError(f"{place}: {self.labels[name]} is a member, but no longer defined in a file")
            if not dry:
                self._drop(name)
            self.dropped.append(Change(DROP, self.labels[name], query_before=self.now[name].query))
        for name, asked in self.asked.items():
            if asked.options.get("applied_from") == self.set_name and name not in self.wanted:
                self._forget(name)
                self.dropped.append(Change(DROP, asked.label, query_before=asked.query))
        return ()

    def warnings(self) -> list[str]:
        return [
            f"{self.labels[name]} needs {self.labels[other]}, which does not exist yet: apply again later"
            for name, other in self.later.items()
        ]

    def _name(self, definition: Definition) -> Name:
        with placed(definition.at), self.conn.transaction():
            row = self.conn.execute(
                """SELECT n.schema_name, n.table_name, pg_catalog.format('%%I.%%I', n.schema_name, n.table_name)
                   FROM pgtrickle._parse_name(%s) AS n""",
                [definition.name],
            ).fetchone()
        assert row is not None
        schema, name, label = row
        if (schema, name) in self.wanted:
            message = f"{definition.at}: {label} is already defined in {self.wanted[schema, name].at}"
            raise DefinitionError(message, hint="use another name or another database for one of them")
        self.labels[schema, name] = label
        return schema, name

    def _put(self, name: Name, definition: Definition) -> tuple[Change | None, StoredTable | None]:
        options, have, asked = self.options[name], self.now.get(name), self.asked.get(name)
        if have is None and asked is not None and is_asked(asked, definition, options):
            return None, None
        if have is None:
            return self._create(name, definition, options)
        return self._alter(name, as_asked(have, asked), definition, options)

    def _checked(self, definition: Definition) -> dict[str, Option]:
        """The options as they would be stored, without defaults; an invalid one is reported with its line."""
        options = dict(definition.options)
        try:
            with translated(), self.conn.transaction():
                options = self._check(options)
        except PgtrickleError:
            for key, value in options.items():
                with placed(definition.place_of(key)), self.conn.transaction():
                    self._check({key: value})
            raise
        return {key: value for key, value in options.items() if DEFAULTS.get(key) != value}

    def _check(self, options: Mapping[str, Option]) -> dict[str, Option]:
        row = self.conn.execute("SELECT pgtrickle._check_options(%s::jsonb)", [json.dumps(options)]).fetchone()
        return dict(row[0]) if row else {}

    def _create(
        self, name: Name, definition: Definition, options: dict[str, Option]
    ) -> tuple[Change, StoredTable | None]:
        given = {key: value for key, value in options.items() if key != "tier"}
        self._call("create_stream_table", name=qualified(*name), query=definition.query, **given)
        found = self._created(name, options)
        old = self.before.get(name) if name in self.replaced else None
        change = Change(
            CREATE if old is None else REPLACE,
            self.labels[name],
            file=definition.at.path,
            options=differences(old.options if old else {}, stored(options)),
            query_before=old.query if old else None,
            query_after=found.query if found else definition.query,
            mode=found.mode if found else None,
            reason=found.reason if found else _WAITS,
        )
        return change, found

    def _alter(
        self, name: Name, have: StoredTable, definition: Definition, options: dict[str, Option]
    ) -> tuple[Change | None, StoredTable]:
        wanted = Alteration(new_query(self.conn, have, definition), differences(have.options, stored(options)))
        set_name = self.set_name if self.policy.adopt else None
        if wanted.is_empty:
            if set_name is None or have.applied_from == set_name:
                return None, have
            return Change(ADOPT, self.labels[name], file=definition.at.path), self._noted(name, set_name)
        if have.applied_from not in (None, self.set_name) and not self.policy.adopt:
            raise DefinitionError(
                f"{self.labels[name]} belongs to the set {have.applied_from}",
                hint=f"remove it there, or adopt it into {self.set_name} with --adopt",
            )
        arguments = wanted.arguments(definition)
        if arguments:
            self._call("alter_stream_table", name=qualified(*name), **arguments)
        found = self._noted(name, set_name, wanted.unset)
        if found.columns != have.columns:
            self.reshaped.add(name)
        return self._altered(name, have, definition, wanted, found), found

    def _altered(
        self, name: Name, have: StoredTable, definition: Definition, wanted: Alteration, found: StoredTable
    ) -> Change:
        waits = name in present.asked(self.conn)
        before = have.typed_query if have.elsewhere else have.query
        return Change(
            ALTER,
            self.labels[name],
            file=definition.at.path,
            options=wanted.options,
            query_before=before if wanted.query is not None else None,
            query_after=wanted.query,
            mode=None if waits else found.mode,
            reason=_WAITS if waits else found.reason,
        )

    def _replace(self, names: list[Name], because: Name, error: PgtrickleError) -> bool:
        """Drops tables and all their readers, which are created again in the same transaction. Without permission
        `because` is refused."""
        reads = present.reads(self.conn)
        doomed = list(names)
        for name in doomed:
            doomed += [reader for reader, read in sorted(reads.items()) if name in read and reader not in doomed]
        foreign = [name for name in doomed if name not in self.wanted]
        if foreign or not self.policy.replace:
            others = ", ".join(self.labels.get(name, name[1]) for name in doomed)
            hint = f"--replace drops {others} and creates them again: they are empty until loaded"
            if foreign:
                other = self.labels.get(foreign[0], foreign[0][1])
                hint = f"{other} is not defined by this set: drop it first, or keep the columns"
            self.refused[because] = self._located(because, error, hint)
            return False
        for name in reversed(upstream_first(doomed, reads)):
            with placed(self.wanted[name].at):
                self._drop(name)
            del self.now[name]
            self.done.pop(name, None)
            self.reshaped.discard(name)
            self.replaced.add(name)
        return True

    def _stuck(self, early: Mapping[Name, PgtrickleError]) -> None:
        """All remaining definitions lack a source. New columns of an altered table exist after its load."""
        for name, error in early.items():
            late = sorted(mentions(self.wanted[name].query, self.reshaped))
            absent = sorted(mentions(self.wanted[name].query, self.pending | self.later.keys()) - {name})
            if error.sqlstate == _MISSING_COLUMN and late:
                if self._replace(late, name, error):
                    return
            elif absent:
                self.later[name] = absent[0]
            else:
                self.refused[name] = self._located(name, error)

    def _located(self, name: Name, error: PgtrickleError, hint: str | None = None) -> PgtrickleError:
        """The same error with the line of the query that PostgreSQL reports, if any."""
        definition = self.wanted[name]
        at = definition.at
        line = None
        if (error.sqlstate or "").startswith(_PARSER):
            line = line_of_error(self.conn, definition.query)
        if line is not None:
            at = replace(definition.query_at, line=definition.query_at.line + line)
        return type(error)(f"{at}: {error.message}", hint=hint or error.hint, sqlstate=error.sqlstate)

    def _noted(self, name: Name, set_name: str | None, unset: list[str] | None = None) -> StoredTable:
        row = self.conn.execute("SELECT pgtrickle._find(%s)", [qualified(*name)]).fetchone()
        assert row is not None
        if set_name is not None or unset:
            self.conn.execute("SELECT pgtrickle._note_applied(%s, %s, %s)", [row[0], set_name, unset or []])
        return present.stream_tables(self.conn, row[0])[name]

    def _created(self, name: Name, options: Mapping[str, Option]) -> StoredTable | None:
        """The result of a new definition. None: it was requested from the control plane."""
        asked = present.asked(self.conn).get(name)
        if asked is not None and asked.refusal is None and asked != self.asked.get(name):
            more = {"applied_from": self.set_name} | {key: value for key, value in options.items() if key == "tier"}
            self.conn.execute("SELECT pgtrickle._note_asked(%s, %s, %s::jsonb)", [*name, json.dumps(more)])
            return None
        if name in self.asked:
            self._forget(name)
        if "tier" in options:
            self._call("alter_stream_table", name=qualified(*name), tier=options["tier"])
        return self._noted(name, self.set_name)

    def _forget(self, name: Name) -> None:
        self.conn.execute("SELECT pgtrickle._forget_asked(%s, %s)", list(name))

    def _drop(self, name: Name) -> None:
        self._call("drop_stream_table", name=qualified(*name))

    def _call(self, function: str, **arguments: Any) -> None:
        """A query is stored with the settings of this role in psql."""
        names = ", ".join(f"{argument} => %s" for argument in arguments)
        with defaulted(self.conn, USUAL):
            self.conn.execute(f"SELECT pgtrickle.{function}({names})", list(arguments.values()))
