"""Values that all stages share. Standard library only."""
