"""Which stream tables are due, and in what order."""
