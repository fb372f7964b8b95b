"""Where logs are kept: `port` says what is promised; `memory`, `sqlite` and `postgres` keep it.

Begin with `port.store`, which lists the parts of a store, then `port.log`. Then read `memory`, the shortest
way to keep the promise. An adapter knows its database and nothing else: no policy, no folding, and no clock
but the database's own for leases.

To add a third database, write a package with the modules of `port`, and an `adapter` that builds the parts
around one connection, pool or state. A part is in the module that has the name of its port's. Every store
uses these modules:

- `limits`: judges and charges calls; `message_rows`: judges flushes of messages;
- `owner`: the names of processes, and the refusals that all stores give in the same words.

`codec` turns events into stored events and back, for whoever is above: a store keeps bodies and does not read
them.

An SQL database gets a `queries.sql` with the same query names, `migrations` with the same numbers and names
(the first may make the tables of today, and the others be empty), and shares these:

- `rows`, `message_rows`, `limits`: rows to values and back;
- `queries`: the files of SQL, and the queries of a list;
- `transactions`: appends that share one, and a sweep that takes several;
- `owner`: what this process holds.

`tests.conformance.suite` proves the parts: all three stores pass the same suite, and so must the next one.
`wiring.py` and `cli/operations.py` then learn its address: each place there that compares with `POSTGRES`.
"""
