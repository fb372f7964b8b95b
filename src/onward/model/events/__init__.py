"""The events: each is one immutable entry of a run's log.

Begin with `event`, then `runs` and `steps`. An event's class name is its stored kind; kind and version select
a closed schema. The events of recorded calls are in `model/call.py`; `catalogue` lists them all, with who may
write each. What they do to the status is in `machine/lifecycle.py`; `docs/events.md` is generated from both
tables.
"""
