"""The plan: immutable nodes, and what can be known about them."""
