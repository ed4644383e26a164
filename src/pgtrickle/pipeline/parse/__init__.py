"""From PostgreSQL's text of a query to plan nodes."""
