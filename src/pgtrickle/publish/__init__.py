"""Subscribers of stream tables: their feeds and their lag."""
