"""Assembles the stages into processes: the only layer that starts, watches and stops things."""
