"""Runs, progress and errors as text for a person. Begin with `output`, where a command prints."""
