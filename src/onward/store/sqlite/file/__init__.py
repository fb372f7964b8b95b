"""The database file: who else has it open, whether it is still the same file, and on what disk it is."""
