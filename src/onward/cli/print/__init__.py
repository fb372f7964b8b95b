"""Runs, steps and progress as text for a person. Begin with `run`; `cli/output.py` prints it.

`live` is apart because it imports a library for terminals.
"""
