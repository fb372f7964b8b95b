"""Requests answered in this process. `lists`, `look`, `effects` need a store, `decide`, `start` an engine.

Begin with `operations.py`, which has all of them.
"""
