"""Starts, supervises and connects the processes of `pgtrickle run`. Decisions belong to their stages."""
