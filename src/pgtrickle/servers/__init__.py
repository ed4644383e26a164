"""Servers that pgtrickle starts itself: Spark Connect, and PostgreSQL for the demo and the tests."""
