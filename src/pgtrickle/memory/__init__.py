"""Shared memory: what one process publishes and others read without waiting. A cache and a signal, never the truth."""
