"""`make docs`: writes the reference pages that are made from the code, so that they cannot disagree with it."""

from __future__ import annotations

import importlib
import pkgutil
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory

import pgtrickle
from pgtrickle import errors
from pgtrickle.cli.exit_status import MEANINGS
from pgtrickle.db import Connection, connect, install
from pgtrickle.ipc.fleet_memory import FleetMemory
from pgtrickle.observe.fleet import FleetObserver
from pgtrickle.observe.metrics import families
from pgtrickle.pipeline.expressions.listed import ENTRIES
from pgtrickle.servers.embedded_postgres import EmbeddedPostgres
from pgtrickle.settings import ALIASES, PROFILES, Sources, describe

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"

# what begins with an underscore is internal
FUNCTIONS = """
    SELECT p.proname, pg_get_function_arguments(p.oid), coalesce(pg_get_function_result(p.oid), 'procedure'),
           obj_description(p.oid, 'pg_proc')
    FROM pg_proc AS p
    WHERE p.pronamespace = 'pgtrickle'::regnamespace AND p.proname !~ '^_'
    ORDER BY p.proname, 2
"""
RELATIONS = """
    SELECT c.relname, string_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod), ', ' ORDER BY a.attnum),
           obj_description(c.oid, 'pg_class')
    FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = 'pgtrickle'::regnamespace AND c.relkind = %s AND c.relname !~ '^_'
    GROUP BY c.oid
    ORDER BY c.relname
"""


def cell(value: object) -> str:
    if value is True or value is False:
        return "on" if value else "off"
    return "" if value in ("", {}) else f"`{value}`"


def settings_page() -> str:
    rows = [
        f"| `{row['name']}` | {cell(dict(row['default']) if hasattr(row['default'], 'items') else row['default'])} "
        f"| {row['range']} | {row['scope']} | {row['doc']} |"
        for row in describe()
    ]
    head = (
        "# Settings\n\nA flag (`--set name=value`) wins over the profile (`--profile`), that over the environment "
        "(`PGTRICKLE_NAME`), that over the TOML file (`--config`), that over what the database says "
        "(`ALTER DATABASE ... SET pg_trickle.name`, `pgtrickle.set_option()`), that over the default. "
        "`pgtrickle config` shows each value and where it comes from; [how to](../howto/settings.md).\n\n"
        "Of: *database*, each for itself, at any time; *fleet*, read when `pgtrickle run` starts, from the database "
        "that `--server` names; *host*, the same, and not by `set_option()`.\n\n"
        f"Other names: {', '.join(f'`{alias}` for `{name}`' for alias, name in ALIASES.items())}.\n\n"
    )
    table = "| setting | default | range | of | meaning |\n|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    return head + table + "\n## Profiles\n\n" + profiles_table()


def profiles_table() -> str:
    names = [row["name"] for row in describe() if any(row["name"] in values for values in PROFILES.values())]
    lines = [f"| setting | {' | '.join(PROFILES)} |", "|---" * (1 + len(PROFILES)) + "|"]
    lines += [f"| `{name}` | {' | '.join(values.get(name, '') for values in PROFILES.values())} |" for name in names]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """All errors with a code of their own, in whatever module they are."""
    for module in pkgutil.walk_packages(pgtrickle.__path__, "pgtrickle."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    kinds = [errors.PgtrickleError]
    for kind in kinds:
        kinds.extend(below for below in kind.__subclasses__() if below.__module__.startswith("pgtrickle."))
    coded = [kind for kind in kinds if "code" in vars(kind)]
    texts = {kind: " ".join((kind.__doc__ or "").partition("\n\n")[0].split()) for kind in coded}
    rows = [f"| {kind.code} | {kind.__name__} | {text} |" for kind, text in texts.items()]
    return "# Errors\n\n| code | name | who acts |\n|---|---|---|\n" + "\n".join(sorted(rows)) + "\n"


def sql_page(connection: Connection) -> str:
    """What a database with pgtrickle offers, as PostgreSQL itself lists it."""
    page = [
        "# SQL\n\nEverything is in schema `pgtrickle`; `GRANT USAGE ON SCHEMA pgtrickle` is what a role needs.\n",
        "## Functions\n",
    ]
    for name, arguments, result, comment in connection.execute(FUNCTIONS):
        page.append(f"### {name}\n\n    {name}({arguments})\n    -> {result}\n\n{comment}\n")
    for title, kind in (("Views", "v"), ("Catalog", "r")):
        page.append(f"## {title}\n")
        for name, columns, comment in connection.execute(RELATIONS, [kind]):
            page.append(f"### {name}\n\n    {columns}\n\n{comment}\n")
    return "\n".join(page)


def commands_page() -> str:
    """What each command says of itself."""
    from typer.main import get_group

    from pgtrickle.cli.app import app

    rows = "\n".join(f"| {status} | {meaning} |" for status, meaning in MEANINGS.items())
    page = [f"# Commands\n\n| exit status | meaning |\n|---|---|\n{rows}\n"]
    group = get_group(app)
    # Not as wide as the terminal that somebody generates it in.
    with group.make_context("pgtrickle", [], resilient_parsing=True, terminal_width=80) as parent:
        page.append(textwrap.indent(group.get_help(parent), "    ") + "\n")
        for name in group.list_commands(parent):
            command = group.commands[name]
            with command.make_context(name, [], parent=parent, resilient_parsing=True) as context:
                page.append(f"## {name}\n\n{textwrap.indent(command.get_help(context), '    ')}\n")
                for below, each in getattr(command, "commands", {}).items():
                    with each.make_context(below, [], parent=context, resilient_parsing=True) as inner:
                        page.append(f"### {name} {below}\n\n{textwrap.indent(each.get_help(inner), '    ')}\n")
    return "\n".join(page)


def expressions_page() -> str:
    """One line per name and result; entries that differ in their arguments only stand together."""
    titles = {
        "operator": "Operators",
        "function": "Functions",
        "construct": "Logic and constructs",
        "cast": "Casts",
    }
    head = (
        "# Expressions over several databases\n\nWhat Spark evaluates with PostgreSQL's exact result. Types meet by "
        "PostgreSQL's implicit casts, so that `int4 = int8` or `date + interval` need no line of their own; BETWEEN, "
        "IN, `= ANY (ARRAY[...])` and `<> ALL (ARRAY[...])` are made of comparisons. `opaque` is every type that is "
        "only carried and whose text decides equality (enum, inet, time, ranges of integers and more). Text is "
        "ordered, and has upper and lower case, under collation C only; it is compared for equality under every "
        "deterministic collation. "
        "A numeric may have 38 digits. `tests/spark/test_conformance.py` compares each line with PostgreSQL.\n"
    )
    parts = [head]
    for kind, title in titles.items():
        rows: dict[tuple[str, str, str], list[str]] = {}
        for entry in ENTRIES:
            if entry.kind == kind:
                name = f"{entry.arguments[0]} to" if kind == "cast" else entry.name
                column = entry.parameter if entry.parameter is not None else ", ".join(entry.arguments)
                where = ", ".join(entry.arguments) if entry.parameter is not None else ""
                rows.setdefault((name, where, entry.note), []).append(entry.result if kind == "cast" else column)
        lines = [
            f"| `{name.replace('|', chr(92) + '|')}` | {where} | {'; '.join(dict.fromkeys(columns))} | {note} |"
            for (name, where, note), columns in rows.items()
        ]
        parts.append(f"\n## {title}\n\n| name | of | for | |\n|---|---|---|---|\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def metrics_page() -> str:
    """Of a fleet without databases: each metric is described, none has a sample."""
    with TemporaryDirectory() as directory:
        observer = FleetObserver(FleetMemory(Path(directory) / "memory", create=True), Sources())
        found = families(observer.read())
        observer.close()
    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} "
        f"| {', '.join(getattr(family, '_labelnames', ()))} | {family.documentation} |"
        for family in found
    ]
    head = "# Metrics\n\nAt `/metrics`: [how to](../howto/web.md#metrics). Units are seconds and bytes.\n\n"
    return head + "| metric | type | labels | meaning |\n|---|---|---|---|\n" + "\n".join(sorted(rows)) + "\n"


def write(target: Path, connection: Connection) -> list[Path]:
    pages = {
        "settings.md": settings_page(),
        "errors.md": errors_page(),
        "sql.md": sql_page(connection),
        "expressions.md": expressions_page(),
        "commands.md": commands_page(),
        "metrics.md": metrics_page(),
    }
    target.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in pages]


def main() -> None:
    with EmbeddedPostgres.create(durable=False) as server, connect(server.dsn(), role="docs", autocommit=True) as conn:
        install(conn)
        for path in write(REFERENCE, conn):
            print(path.relative_to(REFERENCE.parents[1]))


if __name__ == "__main__":
    main()
