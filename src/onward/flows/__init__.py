"""Python functions as durable pipelines. Begin with `define`, then `running`.

A flow is a run of a graph with one node, whose handler (`handler`) calls the user's function. Its steps are
recorded calls of that node's step. After a crash the function runs again from its beginning, and every call
that was answered is answered from the log.

That is only right if the function calls the same things again. So its calls have keys that do not depend on
timing (`scope`), and each is compared with the history: what differs is refused, before anything is written.
"""
