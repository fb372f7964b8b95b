"""The definition of a pipeline: text in, an immutable graph out, and nothing is ever executed on the way.

A file is read in three passes, and each knows only its own question.

1. `dot` asks what is written. It turns the text into a `Graph` and remembers where every value stands, so
   that any later complaint can point at the exact column, even inside a stylesheet that spans ten lines.
2. `prepare` asks what is meant: `$goal` is put into the prompts, the stylesheet gives models to the nodes
   that leave them open, and the caller's own transforms follow.
3. `check` asks whether it can run. Every rule is a row of a table, and all of them speak at once.

`build` is the only door that goes through all three. Starting a run, resuming it and merely looking at it
use the same door, so a pipeline cannot mean one thing when it starts and another when it is resumed.

The text may be hostile. Every loop is bounded by the limits in `source` and `draft`, no part recurses
deeper than a subgraph may nest, and values are shared rather than copied, so a small file cannot grow into
a large graph.
"""
