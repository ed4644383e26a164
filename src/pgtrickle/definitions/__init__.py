"""Definitions of stream tables in files: read, compared with databases, applied, exported."""
