"""The store in memory: the reference. What it does is what the databases must do, in few words.

Begin with `adapter`, then `log`; `state` has the tables they share. Modules have the names of those in
`port`; leases and effects are in `state`, and limits in `log`.
"""
