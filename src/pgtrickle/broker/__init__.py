"""Looks at sources that several databases want to know about: once for all of them."""
