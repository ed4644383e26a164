"""Counts the changes of sources that several databases read, once for all of them."""
