"""Compiled stream tables: everything that does not depend on cuts and keys."""
