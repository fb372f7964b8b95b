"""One reading of a log: what its events say about a run's steps, attempts, gates, branches and stops.

Begin with `projection.py`: it folds events one by one, live or from the store, and every page, receipt and
picture uses it. `step.py` has its values. `kinds.py` says which step an event is about, and which kinds each
reader leaves out on purpose. Nothing here reads a store, a clock or a file.
"""
