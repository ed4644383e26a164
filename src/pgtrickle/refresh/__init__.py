"""One refresh: what to do, read at one snapshot, compute, apply, and commit."""
