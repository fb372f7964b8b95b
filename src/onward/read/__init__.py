"""Runs as people and programs read them; nothing here writes, except `backfill`.

Begin with `log`: the one projection of a run's log. `view` turns a run and its steps into plain values,
`step` tells of one step in full and of its calls, `past` tells a step what came before it, `dialect_events`
uses the event names of the DOT dialect, `lookup` finds runs, steps and checkpoints and reads logs in pages,
and `verify` proves that what is stored agrees with the log. `backfill` fills in what a migration could not.
"""
