"""The store in a PostgreSQL database, for many processes on many machines.

Begin with `adapter`, which builds the parts around pools of connections (`pool`), then `log`. The parts have
the names of those in `port`; `runs` also has the measures and the outbox. `read` and `calls` are shared by
several parts: `read` uses a connection that a part has taken from a pool, and `calls` makes the statements of
a write. `statements` has the queries; `queries.sql` and `migrations/` have their SQL.

A step is one statement. It locks the runs it is about in the order of their ids, moves each that still stands
where its writer thinks, under the lease its writer has, and stores the events of those that moved. Whatever
did not move is a row that is missing from the answer: a refusal, which disturbs no other write. So fifty
runs commit as fast as one, and one commits in a single trip to the server.

What is sent together is one transaction (`pool.Wire`): statements without a BEGIN between two synchronisation
points stand or fall together, so even a write with blobs and a snapshot is a single trip. Only a request to a
run needs two, because its caller decides between them, under the lock of the run's row.

A connection may break when the server has committed and we have not heard of it. Nothing is guessed: `Pool`
takes another connection and sends the same again. Every write can be sent twice, because its last hash or its
append id tells that it is there, and what is asked twice is answered as if it had been asked once.

A server that turns read-only may have been demoted. The first statement that it refuses makes the store drop
all connections (`pool.Server`), and the same is sent again over a new one, which can reach the new primary.

Behind a pooler, sessions are shared, so nothing is left in them: `connection` notices the pooler, and `Wire`
sends the settings with every transaction.

Who holds a run is a name and a time limit by the server's clock. The name holds enough to see on the same
machine that its process has ended; anywhere else one waits for the time to pass.
"""
