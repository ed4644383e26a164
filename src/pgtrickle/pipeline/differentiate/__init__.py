"""Delta rules: from a plan and its changed sources to SQL for the signed change."""
