"""Verification, diagnosis and clean-up."""
