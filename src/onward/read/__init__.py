"""Runs as people and programs read them; nothing here writes.

Begin with `log/`: the one projection of a run's log. `view` and `steps` turn a run into plain values, `past`
and `preamble` tell a step what came before it, `dialect_events` uses the event names of the DOT dialect,
`lookup` finds runs and reads their logs in pages, `checkpoints` lists where a run can be replayed from, and
`verify` proves that what is stored agrees with the log.
"""
