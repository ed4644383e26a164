"""The vocabulary that all stages share. Standard library only."""
