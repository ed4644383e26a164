"""What the status functions and views show of running processes."""
