"""What happened, on disk, for people and tools. Read back are only `status.json` of an attempt at
hand, and what an attempt left that another one continues.

Begin with `receipt` (receipts and handoffs as values), then `trail` and `filling` (from a log to them) and
`pages` (the other files of a run). `names` and `places` say where each lies. Below these, `folder`, `entry`,
`held` and `syncing` write safely: through no link, and onto the disk. `reading`, `looking` and `status` read
what others may have changed.
"""
