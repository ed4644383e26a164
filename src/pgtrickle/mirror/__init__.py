"""Local copies of tables of other databases: prepared, loaded, refreshed to one cut of their origin, verified."""
