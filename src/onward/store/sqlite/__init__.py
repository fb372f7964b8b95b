"""The store in one SQLite file, for one machine.

Begin with `adapter`, which builds the parts around one connection (`transaction`), then `log`. The parts have
the names of those in `port`; `runs` also has the measures and the outbox.

- `connection` opens the file and brings its schema up to date; `transaction` is the only way to use it, and
  notices when the file is not the same any more.
- `presence` tells which processes are alive, by file locks.
- `statements` has the queries, and reads that several parts share, inside a transaction that a part has
  begun.

`queries.sql` and `migrations/` have the SQL.
"""
