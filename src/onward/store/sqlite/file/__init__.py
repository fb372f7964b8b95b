"""The database file: opening it, transactions on it, whether it is still the same, and who else uses it."""
