"""Access to PostgreSQL: connections, error translation, installed objects. No other package imports the driver."""

from pgtrickle.db.connect import Connection, connect, outside, translate, translated
from pgtrickle.db.install import SCHEMA_VERSION, install, installed_version, uninstall
from pgtrickle.db.statements import statement
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
    "statement",
    "translate",
    "translated",
    "uninstall",
]
