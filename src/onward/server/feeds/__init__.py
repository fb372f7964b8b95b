"""What happens, told while it happens: over SSE, over `/api/live`, and to whoever waits for a run.

One **hub** (`hub`) in a server looks for changes, however many read: one look a tick for all that is watched,
in a thread with a loop and a reading store of its own, so that reading never holds up a request. What can be
watched is a **topic** (`topics`, `shown`): the events of a run, what is said in a chat, which runs changed,
how a run stands. A topic has a cursor, and it belongs to the hub: whatever is new after it is read and
encoded once, and given to every reader.

A **reader** (`readers`) is one connection: a queue with an end. It joins a topic with a cursor of its own,
reads the backlog from the store page by page, and is live when it has reached the topic's cursor. What it
gets from then on it gets in the order of the log; what it has seen already is dropped by its position. A
reader that is too slow is *cut*, never waited for: it comes back with the position it saw last. So nothing is
lost or repeated, whatever is killed in between.

`streams` counts the connections of a server, keeps them alive, asks again whether they are allowed, and says
goodbye. `room` is where they are asked for, `sse` and `socket` write what a reader has, and `frames` is what
they write. Whoever wants to be told in this process uses `follow` of `room`.
"""
