"""Nouns: what a run, its events, steps and gates are. Frozen values, no behaviour beyond invariants.

Begin with `events` (what a log says) and `run` (what a log folds to). The events of gates and calls are in
`gate` and `call`; `row` is what lists and workers read instead of logs,
`chat` is about messages, `result` about how attempts end. Single values are in `values` (numbers, times,
tags), `context` (what steps hand on), `ids` and `limits`.
"""
