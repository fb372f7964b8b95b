"""Verbs: pure, synchronous functions that say what a log means and what comes next.

`lifecycle` holds the tables, `apply` folds, `decide` turns requests into events or a refusal, `plan` says
what a holder does next. None of them reads a clock, rolls dice or touches a disk.
"""
