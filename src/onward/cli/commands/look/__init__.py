"""Commands that look at runs and change nothing: one module for each command, or for a few that are alike.

Begin with `status` (a list, or one run) and `show` (all that happened in it); `watch` and `preview` are
shared.
"""
