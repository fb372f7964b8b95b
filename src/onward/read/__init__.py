"""Runs as people and programs read them; nothing here writes.

`view` turns a run into plain values, `history` and `past` tell what its log says, `lookup` finds it by what a
person typed, and `verify` proves that what is stored agrees with the log.
"""
