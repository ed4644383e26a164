"""Those who follow stream tables from outside: what they need, and who of them is behind."""
