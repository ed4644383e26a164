"""Origins, the databases whose tables are mirrored elsewhere: sessions, polling, reading changes once for all
readers."""
