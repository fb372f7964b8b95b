"""Requests answered in this process: `lists` and `look` need a store, `decide` and `start` an engine.

Begin with `operations.py`, which has all of them.
"""
