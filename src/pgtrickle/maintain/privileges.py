"""Unneeded privileges of the service role, and grants to others on private objects: the part of `doctor` about
roles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import install_scripts, statement

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

_CLOSED = re.compile(r"^REVOKE ALL ON FUNCTION (\S+?\(.*\)) FROM PUBLIC;", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Privilege:
    """`is_bad`: the operator has to act; otherwise it is information."""

    is_bad: bool
    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Rights:
    """The findings in one database. `needed`: for each role granted to the service role, whether it is needed."""

    database: str
    service: str
    found: tuple[Privilege, ...]
    needed: dict[str, bool]


def closed_functions() -> list[str]:
    """Columns that the install scripts protect."""
    return [name for text in install_scripts() for name in _CLOSED.findall(text)]


def rights_in(conn: Connection) -> Rights | None:
    """None if pgtrickle is not installed, or not readable."""
    with translated():
        row = conn.execute(statement("service_role")).fetchone()
        if row is None or not row[1]:
            return None
        rows = conn.execute(statement("service_privileges"), {"closed": closed_functions()}).fetchall()
        roles = conn.execute(statement("service_memberships")).fetchall()
    privileges = tuple(Privilege(*one) for one in rows)
    return Rights(conn.info.dbname, row[0], privileges, {name: needed for _, name, needed in roles})


def excess(rights: Sequence[Rights]) -> list[Privilege]:
    """Of all databases of one service role, each once. Roles belong to the whole server: one that is needed anywhere is
    needed."""
    where: dict[Privilege, list[str]] = {}
    needed: dict[str, bool] = {}
    for one in rights:
        for privilege in one.found:
            where.setdefault(privilege, []).append(one.database)
        for role, is_needed in one.needed.items():
            needed[role] = needed.get(role, False) or is_needed
    listed = [
        privilege if len(names) == len(rights) else replace(privilege, what=f"{', '.join(names)}: {privilege.what}")
        for privilege, names in where.items()
    ]
    for role in (role for role, is_needed in needed.items() if not is_needed):
        what = f"it is a member of {role}, which owns no source and is not an author"
        listed.append(Privilege(False, what, f"REVOKE {role} FROM {rights[0].service}"))
    return listed
