"""Recorded calls inside a step: `recorder.py` makes them, `memory.py` knows those that were answered,
and `holding.py` stops an attempt between two of them."""
