"""Verification, diagnosis and cleaning up: what runs beside refreshes."""
