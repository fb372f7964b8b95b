"""Nouns: what a run, its events, steps and gates are. Frozen values, no behaviour beyond invariants."""
