"""SQL identifiers, quoted, and the names of the objects that capture creates for a source. Pure."""

from __future__ import annotations

from pgtrickle.errors import DefinitionError


def quote_ident(name: str) -> str:
    """The name as an SQL identifier, always quoted: right for every name, reserved words included."""
    if "\x00" in name or not name:
        raise DefinitionError(f"{name!r} cannot be a PostgreSQL identifier")
    return '"' + name.replace('"', '""') + '"'


def qualified(schema: str, name: str) -> str:
    """schema.name, both quoted."""
    return f"{quote_ident(schema)}.{quote_ident(name)}"


def quote_literal(text: str) -> str:
    """For texts that people copy; statements get values as parameters."""
    return "'" + text.replace("'", "''") + "'"


def buffer_name(relid: int) -> str:
    """The change buffer of a source."""
    return f"pgtrickle_changes.changes_{relid:d}"


def capture_function_name(relid: int) -> str:
    return f"pgtrickle_changes.capture_{relid:d}"


def buffer_copy_name(relid: int) -> str:
    """The temporary copy of one window of a change buffer."""
    return f"__pgt_changes_{relid}"
