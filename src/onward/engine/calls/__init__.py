"""Recorded calls inside a step: `recorder.py` makes them, `memory.py` knows those that were answered."""
