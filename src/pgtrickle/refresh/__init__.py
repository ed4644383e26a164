"""One refresh: decide, read at one snapshot, compute, apply and commit."""
