"""Verbs: pure, synchronous functions that say what a log means and what comes next.

`catalogue` has a row for each kind of event and `lifecycle` the statuses; `fold/` says what a log means,
`decide/` what a request does, and `plan/` what a holder does next; `definition` is the graph as they use it.
None of them reads a clock, rolls dice or touches a disk.
"""
