"""Where logs are kept: `port` says what is promised; `memory`, `sqlite` and `postgres` keep it.

Begin with `port.store`: a store has parts (log, leases, runs, gates, outbox, messages, blobs, effects,
retention, carrying, measures, backfill). Then read `memory`, the shortest way to keep the promise. An
adapter knows its database and nothing else: no policy, no folding, and no clock but the database's own for
leases.

To add a third database, write a package with one module for each part, as in `sqlite`, and an `adapter` that
builds the parts around one connection, pool or state. An SQL database gets a `queries.sql` with the same
query names and the same `migrations`; these modules hold what SQL databases share:

- `rows`, `tallies`, `outgoing`, `growing`: rows to values and back; `queries`: the files of SQL;
- `filters`: the queries of a list; `refusals`: the words of a refusal;
- `group`, `member`: appends that share a transaction; `holdings`: what this process holds;
- `owner`: the names of processes; `sweeping`: the three steps that delete unused content.

`onward.testing.conformance` proves the parts: all three stores pass the same suite, and so must the next one.
`wiring.open_store` then learns its address.
"""
