"""What happened in a run, on disk, for people and tools.

Only `status.json` of the current attempt, and what an attempt left that another one continues, are read back.

Begin with `receipt` (receipts and handoffs as values), then `trail` (from a log to them) and `run_directory`
(the other files of a run, and whose directory it is). Below these, `folder` and `entry` say where each file
lies and write it safely: through no link, and onto the disk. `audit` reads receipts that others may have
changed.
"""
