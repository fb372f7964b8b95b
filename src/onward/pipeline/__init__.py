"""The definition of a pipeline: text in, an immutable graph out; nothing is executed.

Begin with `build`, which reads a file in three passes.

1. `dot` reads what is written. It turns the text into a `Graph` and remembers the position of every value, so
   that a later message can point at the exact column, even inside a stylesheet that spans ten lines.
2. `build` applies what is meant: `$goal` in prompts, then the models of the stylesheet, then the caller's
   transforms.
3. `rules/` decides whether it can run. Every rule is a row of a table, and all of them report at once.

Starting, resuming and looking at a run use `build`, so a pipeline means the same when it starts and when it
is resumed.

The rest answers questions about a graph: `edges` which edge a run takes, `branches` where branches meet and
what they reach, `gate` what a human gate asks.

The text may be hostile. Limits in `source` and `draft` bound every loop, recursion is no deeper than
subgraphs may nest, and values are shared rather than copied, so a small file cannot grow into a large
graph.
"""
