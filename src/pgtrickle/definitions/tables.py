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
from pgtrickle.definitions.compare import Alteration, as_requested, differences, is_requested, new_query, non_default
from pgtrickle.definitions.definition import DEFAULTS, Definition, FilePosition, Option
from pgtrickle.definitions.order import Name, mentions, upstream_first
from pgtrickle.definitions.present import StoredTable, errors_at
from pgtrickle.errors import DefinitionError, PgtrickleError, RefusedError, TransientError
from pgtrickle.model.identifiers import qualified
from pgtrickle.model.session import USUAL

_MISSING_COLUMN = "42703"
_MISSING = ("42P01", _MISSING_COLUMN)
_NOT_ALTERED = ("2BP01", "42809")  # other objects depend on its columns; its partitioning would change
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
        self.tables_before = present.stream_tables(conn)
        self.tables = dict(self.tables_before)
        self.labels = {name: table.label for name, table in self.tables_before.items()}
        self.definitions: dict[Name, Definition] = {}
        self.options: dict[Name, dict[str, Option]] = {}
        self.refused: dict[Name, PgtrickleError] = {}
        unnamed: list[PgtrickleError] = []
        for definition in definitions:
            try:
                name = self._resolved_name(definition)
            except DefinitionError as error:
                unnamed.append(error)
                continue
            self.definitions[name] = definition
            try:
                self.options[name] = self._validated_options(definition)
            except DefinitionError as error:
                self.refused[name] = error
        if unnamed:
            raise RefusedError([*unnamed, *self.refused.values()])
        self.requests = present.pending_definitions(conn)
        self.pending: set[Name] = set()  # definitions that wait for the control plane
        self.postponed: dict[Name, Name] = {}  # definition -> a stream table that it reads and that does not exist yet
        self.done: dict[Name, Change | None] = {}
        self.dropped: list[Change] = []
        self.reshaped: set[Name] = set()  # altered; their columns change with their next refresh
        self.replaced: set[Name] = set()

    def changes(self) -> list[Change]:
        return [change for change in self.done.values() if change is not None] + self.dropped

    def create_and_alter(self) -> None:
        """Creates and alters, upstream first. The order is a guess; a definition that comes too early is retried."""
        guess = {name: mentions(d.query, self.definitions.keys()) - {name} for name, d in self.definitions.items()}
        order = upstream_first(sorted(self.definitions), guess)
        while waiting := [
            name for name in order if not (name in self.done or name in self.refused or name in self.postponed)
        ]:
            early: dict[Name, PgtrickleError] = {}
            for name in waiting:
                try:
                    with translated(), self.conn.transaction():
                        change, table = self._create_or_alter(name, self.definitions[name])
                except PgtrickleError as error:
                    if isinstance(error, TransientError):
                        raise
                    if error.sqlstate in _MISSING:
                        early[name] = error
                    elif error.sqlstate in _NOT_ALTERED and name in self.tables:
                        self._replace([name], name, error)
                    else:
                        self.refused[name] = self._with_position(name, error)
                else:
                    self.done[name] = change
                    if table is not None:
                        self.tables[name] = table
                    else:
                        self.pending.add(name)
            if len(early) == len(waiting):
                self._resolve_missing(early)
        if self.refused:
            # A definition that only failed because it reads a refused one is not reported.
            causes = [e for name, e in self.refused.items() if not (guess[name] & self.refused.keys())]
            raise RefusedError(causes or list(self.refused.values()))

    def drop_undefined(self, *, dry: bool, needed: Mapping[str, FilePosition]) -> tuple[str, ...]:
        """Drops the stream tables that the set created and no longer defines, downstream first. Without prune: returns
        their names."""
        rest = [n for n, t in self.tables.items() if t.applied_from == self.set_name and n not in self.definitions]
        if not self.policy.prune:
            return tuple(self.labels[name] for name in rest)
        reads = present.reads(self.conn)
        for name in reversed(upstream_first(rest, reads)):
            readers = [reader for reader, read in reads.items() if name in read and reader not in rest]
            holders = sorted(self.labels.get(reader, reader[1]) for reader in readers)
            rows = self.conn.execute(statement("definitions_hold"), [self.tables[name].pgt_id]).fetchall()
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
            self.dropped.append(Change(DROP, self.labels[name], query_before=self.tables[name].query))
        for name, request in self.requests.items():
            if request.options.get("applied_from") == self.set_name and name not in self.definitions:
                self._withdraw_request(name)
                self.dropped.append(Change(DROP, request.label, query_before=request.query))
        return ()

    def warnings(self) -> list[str]:
        return [
            f"{self.labels[name]} needs {self.labels[other]}, which does not exist yet: apply again later"
            for name, other in self.postponed.items()
        ]

    def _resolved_name(self, definition: Definition) -> Name:
        with errors_at(definition.at), self.conn.transaction():
            row = self.conn.execute(
                """SELECT n.schema_name, n.table_name, pg_catalog.format('%%I.%%I', n.schema_name, n.table_name)
                   FROM pgtrickle._parse_name(%s) AS n""",
                [definition.name],
            ).fetchone()
        assert row is not None
        schema, name, label = row
        if (schema, name) in self.definitions:
            message = f"{definition.at}: {label} is already defined in {self.definitions[schema, name].at}"
            raise DefinitionError(message, hint="use another name or another database for one of them")
        self.labels[schema, name] = label
        return schema, name

    def _create_or_alter(self, name: Name, definition: Definition) -> tuple[Change | None, StoredTable | None]:
        options, current, request = self.options[name], self.tables.get(name), self.requests.get(name)
        if current is None and request is not None and is_requested(request, definition, options):
            return None, None
        if current is None:
            return self._create(name, definition, options)
        return self._alter(name, as_requested(current, request), definition, options)

    def _validated_options(self, definition: Definition) -> dict[str, Option]:
        """The options in their stored form, without defaults. The error for an invalid one has its line."""
        options = dict(definition.options)
        try:
            with translated(), self.conn.transaction():
                options = self._check_options(options)
        except PgtrickleError:
            for key, value in options.items():
                with errors_at(definition.place_of(key)), self.conn.transaction():
                    self._check_options({key: value})
            raise
        return {key: value for key, value in options.items() if DEFAULTS.get(key) != value}

    def _check_options(self, options: Mapping[str, Option]) -> dict[str, Option]:
        row = self.conn.execute("SELECT pgtrickle._check_options(%s::jsonb)", [json.dumps(options)]).fetchone()
        return dict(row[0]) if row else {}

    def _create(
        self, name: Name, definition: Definition, options: dict[str, Option]
    ) -> tuple[Change, StoredTable | None]:
        arguments = {key: value for key, value in options.items() if key != "tier"}
        self._call("create_stream_table", name=qualified(*name), query=definition.query, **arguments)
        created = self._record_created(name, options)
        old = self.tables_before.get(name) if name in self.replaced else None
        change = Change(
            CREATE if old is None else REPLACE,
            self.labels[name],
            file=definition.at.path,
            options=differences(old.options if old else {}, non_default(options)),
            query_before=old.query if old else None,
            query_after=created.query if created else definition.query,
            mode=created.mode if created else None,
            reason=created.reason if created else _WAITS,
        )
        return change, created

    def _alter(
        self, name: Name, current: StoredTable, definition: Definition, options: dict[str, Option]
    ) -> tuple[Change | None, StoredTable]:
        alteration = Alteration(
            new_query(self.conn, current, definition), differences(current.options, non_default(options))
        )
        set_name = self.set_name if self.policy.adopt else None
        if alteration.is_empty:
            if set_name is None or current.applied_from == set_name:
                return None, current
            return Change(ADOPT, self.labels[name], file=definition.at.path), self._record_applied(name, set_name)
        if current.applied_from not in (None, self.set_name) and not self.policy.adopt:
            raise DefinitionError(
                f"{self.labels[name]} belongs to the set {current.applied_from}",
                hint=f"remove it there, or adopt it into {self.set_name} with --adopt",
            )
        arguments = alteration.arguments(definition)
        if arguments:
            self._call("alter_stream_table", name=qualified(*name), **arguments)
        altered = self._record_applied(name, set_name, alteration.unset)
        if altered.columns != current.columns:
            self.reshaped.add(name)
        return self._alter_change(name, current, definition, alteration, altered), altered

    def _alter_change(
        self, name: Name, current: StoredTable, definition: Definition, alteration: Alteration, altered: StoredTable
    ) -> Change:
        waits = name in present.pending_definitions(self.conn)
        before = current.typed_query if current.is_cross_database else current.query
        return Change(
            ALTER,
            self.labels[name],
            file=definition.at.path,
            options=alteration.options,
            query_before=before if alteration.query is not None else None,
            query_after=alteration.query,
            mode=None if waits else altered.mode,
            reason=_WAITS if waits else altered.reason,
        )

    def _replace(self, names: list[Name], cause: Name, error: PgtrickleError) -> bool:
        """Drops tables and all their readers, which are created again in the same transaction. Without permission
        `cause` is refused."""
        reads = present.reads(self.conn)
        to_drop = list(names)
        for name in to_drop:
            to_drop += [reader for reader, read in sorted(reads.items()) if name in read and reader not in to_drop]
        foreign = [name for name in to_drop if name not in self.definitions]
        if foreign or not self.policy.replace:
            others = ", ".join(self.labels.get(name, name[1]) for name in to_drop)
            hint = f"--replace drops {others} and creates them again: they are empty until loaded"
            if foreign:
                other = self.labels.get(foreign[0], foreign[0][1])
                hint = f"{other} is not defined by this set: drop it first, or keep the columns"
            self.refused[cause] = self._with_position(cause, error, hint)
            return False
        for name in reversed(upstream_first(to_drop, reads)):
            with errors_at(self.definitions[name].at):
                self._drop(name)
            del self.tables[name]
            self.done.pop(name, None)
            self.reshaped.discard(name)
            self.replaced.add(name)
        return True

    def _resolve_missing(self, early: Mapping[Name, PgtrickleError]) -> None:
        """Called when every remaining definition lacks a relation or a column. An altered table gets its new columns
        with its next load only: it is replaced, or the definition is postponed or refused."""
        for name, error in early.items():
            late = sorted(mentions(self.definitions[name].query, self.reshaped))
            absent = sorted(mentions(self.definitions[name].query, self.pending | self.postponed.keys()) - {name})
            if error.sqlstate == _MISSING_COLUMN and late:
                if self._replace(late, name, error):
                    return
            elif absent:
                self.postponed[name] = absent[0]
            else:
                self.refused[name] = self._with_position(name, error)

    def _with_position(self, name: Name, error: PgtrickleError, hint: str | None = None) -> PgtrickleError:
        """The same error with the line of the query that PostgreSQL reports, if any."""
        definition = self.definitions[name]
        at = definition.at
        line = None
        if (error.sqlstate or "").startswith(_PARSER):
            line = line_of_error(self.conn, definition.query)
        if line is not None:
            at = replace(definition.query_at, line=definition.query_at.line + line)
        return type(error)(f"{at}: {error.message}", hint=hint or error.hint, sqlstate=error.sqlstate)

    def _record_applied(self, name: Name, set_name: str | None, unset: list[str] | None = None) -> StoredTable:
        row = self.conn.execute("SELECT pgtrickle._find(%s)", [qualified(*name)]).fetchone()
        assert row is not None
        if set_name is not None or unset:
            self.conn.execute("SELECT pgtrickle._note_applied(%s, %s, %s)", [row[0], set_name, unset or []])
        return present.stream_tables(self.conn, row[0])[name]

    def _record_created(self, name: Name, options: Mapping[str, Option]) -> StoredTable | None:
        """Records what applied the definition; returns the new table, or None if the control plane has to create it."""
        request = present.pending_definitions(self.conn).get(name)
        if request is not None and request.refusal is None and request != self.requests.get(name):
            more = {"applied_from": self.set_name} | {key: value for key, value in options.items() if key == "tier"}
            self.conn.execute("SELECT pgtrickle._note_asked(%s, %s, %s::jsonb)", [*name, json.dumps(more)])
            return None
        if name in self.requests:
            self._withdraw_request(name)
        if "tier" in options:
            self._call("alter_stream_table", name=qualified(*name), tier=options["tier"])
        return self._record_applied(name, self.set_name)

    def _withdraw_request(self, name: Name) -> None:
        self.conn.execute("SELECT pgtrickle._forget_asked(%s, %s)", list(name))

    def _drop(self, name: Name) -> None:
        self._call("drop_stream_table", name=qualified(*name))

    def _call(self, function: str, **arguments: Any) -> None:
        """Calls the function with the settings that this role has in psql: they are stored with a query."""
        names = ", ".join(f"{argument} => %s" for argument in arguments)
        with defaulted(self.conn, USUAL):
            self.conn.execute(f"SELECT pgtrickle.{function}({names})", list(arguments.values()))
