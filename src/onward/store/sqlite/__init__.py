"""The store in one SQLite file, for one machine.

Begin with `adapter`, which builds the parts around one connection (`transaction`), then `log`. `reading` and
`writing` work inside a transaction that a part has begun. File locks tell who is alive (`file.presence`).
"""
