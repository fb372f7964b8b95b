"""Live updates: over SSE, over `/api/live`, and for requests that wait for a run.

One **hub** (`hub`) in a server polls for changes, however many readers there are: one poll per tick for all
topics, in a thread with its own loop and store, so that reading never delays a request. A **topic**
(`topics`, `shown`) is what can be followed: the events of a run, the messages of a chat, which runs changed,
the state of a run. A topic has a cursor, which belongs to the hub: anything new after it is read and
encoded once, and passed to every reader.

A **reader** (`readers`) is one connection: a bounded queue. It joins a topic with its own cursor,
reads the backlog from the store page by page, and is live when it has reached the topic's cursor. From then
on it receives frames in the order of the log, and drops those it has seen by their position. A
reader that is too slow is *cut*, never waited for: it reconnects with the last position it saw. So nothing is
lost or repeated, whatever is killed in between.

`streams` counts the connections of a server, keeps them alive, checks again whether they are allowed, and
closes them. `room` has their addresses, `sse` and `socket` write what a reader has, and `frames` is what
they write. Code in this process follows topics with `follow` of `room`.
"""
