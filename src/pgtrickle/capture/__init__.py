"""Writes to source tables become signed row images in buffers; source transactions never fail because of us."""
