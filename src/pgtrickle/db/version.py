"""The version of a database's catalog, and whether this program works with it. Only `install` changes a version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgtrickle import __version__
from pgtrickle.db.connect import translated
from pgtrickle.db.statements import statement
from pgtrickle.errors import CatalogVersionError

if TYPE_CHECKING:
    from pgtrickle.db.connect import Connection

SCHEMA_VERSION = 2  # the number of the latest files in sql/migrations


@dataclass(frozen=True, slots=True)
class CatalogVersion:
    """`package`: the version of pgtrickle that installed the catalog or upgraded it last."""

    schema: int
    package: str

    def problem(self, database: str) -> CatalogVersionError | None:
        """Why this program does not use the database. None: the catalog has the required version."""
        if self.schema < SCHEMA_VERSION:
            return CatalogVersionError(
                f"the catalog of database {database} has version {self.schema}, written by pgtrickle {self.package}; "
                f"pgtrickle {__version__} needs version {SCHEMA_VERSION}",
                hint="pgtrickle install DSN upgrades it and keeps all stream tables",
            )
        if self.schema > SCHEMA_VERSION:
            return CatalogVersionError(
                f"the catalog of database {database} has version {self.schema}, written by pgtrickle {self.package}; "
                f"pgtrickle {__version__} knows versions up to {SCHEMA_VERSION}",
                hint=f"upgrade pgtrickle to {self.package} or later",
            )
        return None


def catalog_version(conn: Connection) -> CatalogVersion | None:
    """None if nothing is installed. Leaves a transaction open only if one was open before."""
    with translated(), conn.transaction():
        row = conn.execute("SELECT pg_catalog.to_regclass('pgtrickle.pgt_schema_version') IS NOT NULL").fetchone()
        if row is None or not row[0]:
            return None
        row = conn.execute(statement("catalog_version")).fetchone()
        return None if row is None else CatalogVersion(*row)


def installed_version(conn: Connection) -> int | None:
    installed = catalog_version(conn)
    return None if installed is None else installed.schema


def refuse_newer(installed: CatalogVersion, database: str) -> None:
    """Raises an error if a later version installed the catalog."""
    if installed.schema > SCHEMA_VERSION and (problem := installed.problem(database)) is not None:
        raise problem


def require_version(conn: Connection) -> None:
    """Raises an error if the catalog has another version than this program needs; not if there is no catalog."""
    installed = catalog_version(conn)
    if installed is not None and (problem := installed.problem(conn.info.dbname)) is not None:
        raise problem
