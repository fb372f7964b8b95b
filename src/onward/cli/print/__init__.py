"""Runs, progress and errors as text for a person. `output` is where a command prints."""
