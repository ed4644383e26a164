"""The databases whose tables are mirrored elsewhere: sessions there, polling, reading changes once for all."""
