"""Recorded calls inside a step: `recorder.py` makes them, `memory.py` knows those that were answered,
and `holding.py` stops an attempt between two of them. `effects.py` has the effects of steps, which are calls.

A handler sees this as `Recorder` of `handlers/calls.py`. What may be written is decided in
`machine/decide/calls.py`, and folded in `machine/fold/calls.py`.
"""
