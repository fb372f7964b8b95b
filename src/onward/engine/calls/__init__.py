"""Recorded calls inside a step: `recorder.py` makes them, `trying.py` has their tries and `one_try.py`
the events of one, `memory.py` knows those that were answered, `under_way.py` those that are being made, and
`holding.py` stops an attempt between two of them. `effects.py` has the effects of steps, which are calls.

A handler sees this as `Recorder` of `handlers/calls.py`. What may be written is decided in
`machine/decide/calls.py`, and folded in `machine/fold/calls.py`.
"""
