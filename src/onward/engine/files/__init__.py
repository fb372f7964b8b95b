"""Runs on disk: directories, receipts, work trees. Nothing here decides anything.

Begin with `run_files` (what is written when something has happened) and `receipts` (what is written before a
commit); both write through `run_on_disk` and `sync_group`. `rebuild` makes the same files from a log.
"""
