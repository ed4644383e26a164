"""pgtrickle: stream tables for PostgreSQL, maintained from changes, from outside, on Spark."""

__version__ = "0.1.0"
