"""Units of all databases, and which of them get the next worker."""
