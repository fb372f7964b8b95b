"""Nouns: what a run, its events, steps and gates are. Frozen values, no behaviour beyond invariants.

Begin with `events` (what a log says) and `run` (what a log folds to). `row` is what lists read instead of
logs, `call` and `chats/` are about calls and messages, `attempt/` about what an attempt leaves, `values/`
about single values: names, numbers, times, the context.
"""
