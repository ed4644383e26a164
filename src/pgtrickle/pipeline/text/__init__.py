"""The text of a query: tokens, references to relations, operators that it does not name."""
