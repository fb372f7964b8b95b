"""Completion in shells: what can stand at the cursor, and the scripts that ask for it."""
