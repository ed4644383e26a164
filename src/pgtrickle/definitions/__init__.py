"""Definitions of stream tables that are kept in files: read, compared with databases, applied, exported."""
