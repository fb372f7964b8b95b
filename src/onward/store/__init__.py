"""Where logs are kept: `port` says what is promised; `memory`, `sqlite` and `postgres` keep it.

Begin with `port.store`, which lists the parts of a store, then `port.log`. Then read `memory`, the shortest
way to keep the promise. An adapter knows its database and nothing else: no policy, no folding, and no clock
but the database's own for leases.

To add a third database, write a package with one module for each part, and an `adapter` that builds the
parts around one connection, pool or state. In `sqlite` and `postgres` the parts `gates` and `outbox` are in
`news/`, `messages` and `intakes` in `chats/`, `limits` in `limits/` (its port is in `port/money/`), and
`workers` beside `leases`; the port of `pipelines` is in `port/registry/`. Every store uses these modules:

- `limits/`: judges and charges calls; `growing`: judges flushes of messages;
- `refusals`: the words of a refusal; `owner`: the names of processes.

`codec` turns events into stored events and back, for whoever is above: a store keeps bodies and does not read
them.

An SQL database gets a `queries.sql` with the same query names, `migrations` with the same numbers and names
(the first may make the tables of today, and the others be empty), and shares these:

- `rows`, `tallies`, `outgoing`: rows to values and back; `queries`: the files of SQL;
- `filters`: the queries of a list; `holdings`: what this process holds;
- `group`, `member`: appends that share a transaction;
- `sweeping`: the three steps that delete unused content.

`onward.testing.conformance` proves the parts: all three stores pass the same suite, and so must the next one.
`wiring/` and `cli/opening/` then learn its address: each place there that compares with `POSTGRES`.
"""
