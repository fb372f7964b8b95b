"""The definition of a pipeline: text in, an immutable graph out; nothing is executed.

A file is read in three passes.

1. `dot` reads what is written. It turns the text into a `Graph` and remembers the position of every value, so
   that a later message can point at the exact column, even inside a stylesheet that spans ten lines.
2. `prepare` applies what is meant: `$goal` in prompts, then the models of the stylesheet, then the caller's
   transforms.
3. `check` decides whether it can run. Every rule is a row of a table, and all of them report at once.

`build` does all three. Starting, resuming and looking at a run use it, so a pipeline means the same when it
starts and when it is resumed.

The text may be hostile. Limits in `source` and `draft` bound every loop, recursion is no deeper than
subgraphs may nest, and values are shared rather than copied, so a small file cannot grow into a large graph.
"""
