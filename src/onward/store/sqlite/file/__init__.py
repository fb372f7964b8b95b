"""The database file: which one it is, whether it is well and still the same, and who else has it open."""
