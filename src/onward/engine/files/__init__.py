"""Runs on disk: directories, receipts, work trees. Nothing here decides anything.

Begin with `run_files` (what is written when something has happened) and `receipts` (what is written before a
commit, or made from a log). `rooms` has a step's own directory, `workspaces` the work trees.
"""
