"""Installs as a service role: a separate ordinary role that `pgtrickle run` uses.

A superuser never owns objects of pgtrickle: it creates the role, does what only a superuser can do, and transfers the
ownership of objects of earlier versions. An ordinary role installs as itself, unless a service role is given.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgtrickle.db.connect import Connection, translated
from pgtrickle.db.install import INSTALL_LOCK, ROLE_MARK, become, install
from pgtrickle.db.lock_retry import retry_locks
from pgtrickle.db.statements import statement
from pgtrickle.db.version import catalog_version, refuse_newer
from pgtrickle.errors import ConfigError, PgtrickleError
from pgtrickle.model.identifiers import quote_ident

DEFAULT_SERVICE_ROLE = "pgtrickle_service"
BROKER_ROLE = "pgtrickle_broker"


@dataclass(frozen=True, slots=True)
class Installation:
    """`role` owns the objects. `is_service`: it is not the installing role, or was given explicitly. `needed`:
    statements that the DBA has to run before existing stream tables can be refreshed; `suggested`: before others can be
    created.
    """

    role: str
    quoted: str
    is_service: bool
    can_log_in: bool
    needed: tuple[str, ...]
    suggested: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Roles:
    me: str
    is_super: bool
    may_create_roles: bool
    owner: str | None
    owner_is_super: bool
    exists: bool
    service_is_super: bool
    may_become: bool
    may_create: bool
    owner_has_database: bool


def install_as_service(conn: Connection, service_role: str | None = None) -> Installation:
    """Installs or upgrades as the service role. `service_role`: the given one."""
    with translated():
        with conn.transaction():
            conn.execute("SELECT pg_catalog.pg_advisory_xact_lock(%s)", [INSTALL_LOCK])
            roles = _roles(conn, service_role or DEFAULT_SERVICE_ROLE)
            target = _choose(roles, service_role)
            roles = _roles(conn, target)
            if roles.service_is_super:
                raise ConfigError(
                    f"{target} is a superuser, which a service role must not be",
                    hint="name another role with --service-role",
                )
            _refuse_newer(conn)
            is_service = target != roles.me
            if is_service:
                _prepare_role(conn, roles, target)
            gives = roles.owner is not None and bool(conn.execute(statement("give_away"), {"role": target}).fetchall())
            if gives and (roles.is_super or roles.owner not in (None, target)):
                _hand_over(conn, roles, target)
            else:
                gives = False
        if gives:
            # New sessions use the service role; existing ones still have the role of the former owner.
            with conn.transaction():
                conn.execute(statement("terminate_backends"))
        install(conn, as_role=target if is_service else None)
        with conn.transaction(), become(conn, target if is_service else None):
            role = conn.execute(statement("role_by_name"), {"name": target}).fetchone()
            quoted, can_log_in = role or (target, False)
            needed = _statements(conn, "service_needs", target)
            suggested = _statements(conn, "service_candidates", target) if is_service else ()
    left = tuple(line for line in suggested if line not in needed)
    return Installation(target, quoted, is_service, can_log_in, needed, left)


def _refuse_newer(conn: Connection) -> None:
    """Checks before any change. If this role may not read the schema, `install` checks as the service role."""
    row = conn.execute(
        "SELECT coalesce(pg_catalog.has_schema_privilege(pg_catalog.to_regnamespace('pgtrickle')::oid, 'USAGE'), false)"
    ).fetchone()
    if row is not None and row[0] and (found := catalog_version(conn)) is not None:
        refuse_newer(found, conn.info.dbname)


def _roles(conn: Connection, service: str) -> _Roles:
    row = conn.execute(statement("install_roles"), {"role": service}).fetchone()
    assert row is not None
    return _Roles(*row)


def _statements(conn: Connection, name: str, role: str) -> tuple[str, ...]:
    return tuple(text for (text,) in conn.execute(statement(name), {"role": role}).fetchall())


def _choose(roles: _Roles, requested: str | None) -> str:
    """The role that will own the objects."""
    if roles.owner is not None and not roles.owner_is_super:
        is_known = roles.owner == DEFAULT_SERVICE_ROLE or roles.owner_has_database
        if roles.is_super and requested is None and not is_known:
            # Any role that may create schemas can create ours; a superuser's sessions would then use that role.
            raise ConfigError(
                f"schema pgtrickle belongs to {roles.owner}",
                hint=f"if this is the service role, use --service-role {roles.owner}; otherwise drop the schema first",
            )
        if requested is None or requested == roles.owner or roles.is_super:
            return requested or roles.owner
        raise ConfigError(
            f"pgtrickle in this database belongs to {roles.owner}, not to {requested}",
            hint="a superuser can transfer it: pgtrickle install --service-role",
        )
    if roles.owner is not None and not roles.is_super:
        raise ConfigError(
            f"pgtrickle was installed by superuser {roles.owner}",
            hint="run pgtrickle install as a superuser, which transfers ownership to a service role",
        )
    return requested or (DEFAULT_SERVICE_ROLE if roles.is_super else roles.me)


def _prepare_role(conn: Connection, roles: _Roles, target: str) -> None:
    """Creates the role if necessary; afterwards we may SET ROLE to it, and it may create schemas."""
    name, me = quote_ident(target), quote_ident(roles.me)
    if not roles.exists:
        if not (roles.is_super or roles.may_create_roles):
            raise ConfigError(
                f"role {target} does not exist and {roles.me} may not create roles",
                hint=f"a role with CREATEROLE runs: CREATE ROLE {name}; GRANT {name} TO {me}",
            )
        conn.execute(f"CREATE ROLE {name} NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS")
        conn.execute(f"COMMENT ON ROLE {name} IS '{ROLE_MARK}'")
    if not roles.is_super and not _roles(conn, target).may_become:
        _try(conn, f"GRANT {name} TO {me}", f"{roles.me} may not SET ROLE to {target}", f"GRANT {name} TO {me}")
        if not _roles(conn, target).may_become:  # from 16 on membership does not imply SET ROLE
            _try(
                conn,
                f"GRANT {name} TO {me} WITH SET TRUE",
                f"{roles.me} may not SET ROLE to {target}",
                "GRANT it WITH SET",
            )
    if not _roles(conn, target).may_create:
        row = conn.execute("SELECT pg_catalog.quote_ident(pg_catalog.current_database())").fetchone()
        grant = f"GRANT CREATE ON DATABASE {row[0] if row else ''} TO {name}"
        _try(conn, grant, f"{target} cannot create schemas in this database", grant)
    if roles.is_super:
        _prepare_broker(conn, name)


def _try(conn: Connection, text: str, problem: str, hint: str) -> None:
    try:
        with translated(), conn.transaction():
            conn.execute(text)
    except PgtrickleError as error:
        raise ConfigError(f"{problem}: {error.message}", hint=hint) from error


def _prepare_broker(conn: Connection, service: str) -> None:
    """Does what sql/install/capture/broker.sql does for a privileged role; the service role is not privileged."""
    if conn.execute(statement("role_by_name"), {"name": BROKER_ROLE}).fetchone() is None:
        conn.execute(f"CREATE ROLE {BROKER_ROLE} NOLOGIN NOINHERIT")
    options = " WITH INHERIT FALSE, SET TRUE" if conn.info.server_version >= 160000 else ""
    conn.execute(f"GRANT {BROKER_ROLE} TO {service}{options}")


def _hand_over(conn: Connection, roles: _Roles, target: str) -> None:
    """Transfers the ownership of every object to the service role; triggers, buffers and content do not change."""
    lacks = _statements(conn, "service_needs", target)
    if lacks:
        missing = () if roles.exists else (f"CREATE ROLE {quote_ident(target)};",)
        raise ConfigError(
            f"nothing was changed: role {target} lacks privileges to read or capture sources of existing stream tables",
            hint=f"run these statements first, then install again: {' '.join((*missing, *lacks))}",
        )

    def give_away() -> None:
        given = conn.execute(statement("give_away"), {"role": target}).fetchall()
        tables = [table for _, table in given if table is not None]
        if tables:
            conn.execute(f"LOCK TABLE ONLY {', ONLY '.join(tables)} IN ACCESS EXCLUSIVE MODE")
        for text, _ in given:
            conn.execute(text)
        conn.execute(statement("mirrors_given"), {"role": target})

    retry_locks(conn, give_away)
