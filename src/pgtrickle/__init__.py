"""pgtrickle: stream tables for PostgreSQL, maintained from changes, from outside, on Spark."""

__version__ = "0.2.0"  # the one place: package metadata, --version and catalogs take it from here
