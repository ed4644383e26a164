"""Whether pgtrickle can be installed in a database by this role: what `pgtrickle init` checks first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.maintain.doctor import NEWEST, OLDEST, Finding

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection


def readiness(conn: Connection) -> list[Finding]:
    """As the role of the session. Nothing is changed."""
    with translated():
        row = conn.execute(statement("readiness")).fetchone()
    assert row is not None
    role, database, is_super, may_create, is_standby, owner, is_owner = row
    version = conn.info.server_version // 10_000
    findings = [
        Finding(
            "postgresql",
            OLDEST <= version <= NEWEST,
            f"{version}" if OLDEST <= version <= NEWEST else f"{version}; {OLDEST} to {NEWEST} are supported",
        ),
        Finding("primary", not is_standby, "it can be written to" if not is_standby else "this is a standby server"),
    ]
    if owner is not None:
        text = f"it is installed, and belongs to {owner}"
        hint = "" if is_owner else f" (hint: connect as {owner}, as a member of it, or as a superuser)"
        findings.append(Finding("schema", is_owner, text + hint))
    else:
        hint = f" (hint: GRANT CREATE ON DATABASE {database} TO {role})"
        text = f"{role} may create schemas in {database}"
        findings.append(Finding("privileges", may_create, text if may_create else f"not: {text}{hint}"))
    if is_super:
        findings.append(Finding("role", True, f"{role} is a superuser: a service role will own pgtrickle"))
    return findings
