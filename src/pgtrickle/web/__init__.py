"""The web UI: pages, their JSON, live updates, metrics, health."""
