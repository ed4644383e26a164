"""Access to PostgreSQL: connections, error translation, installed objects. No other package imports the driver."""

from pgtrickle.db.connect import Connection, connect, outside, translate, translated
from pgtrickle.db.install import install, uninstall
from pgtrickle.db.statements import statement
from pgtrickle.db.version import SCHEMA_VERSION, installed_version, require_version
from pgtrickle.model.identifiers import qualified, quote_ident

__all__ = [
    "SCHEMA_VERSION",
    "Connection",
    "connect",
    "install",
    "installed_version",
    "outside",
    "qualified",
    "quote_ident",
    "require_version",
    "statement",
    "translate",
    "translated",
    "uninstall",
]
