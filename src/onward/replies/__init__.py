"""What is answered: plain JSON values under stable names. `onward … --json` prints these.

- `runs`: a run as it stands, in lists or in full, its gates, and what came of a decision. Begin here.
- `steps`: what happened in a run: its steps, calls, artifacts, events, and its picture.
- `chats`: messages, and chats with their runs.
- `database`: what concerns more than one run: numbers, workers, limits, pipelines, notifications.

Each shape is here once, as a TypedDict, because schemas and pages are made from it. There is no code here, so
whatever computes a value of a reply may name its type: `read`, `draw`, `observe`, `engine`, `operations`. The
function that builds a shape returns it, and the type checker compares the two: no `cast`, and `**` only of
another shape. A field that may be absent is set or deleted under its name. They are imported for the type
checker alone: each of these modules takes 3 ms, and quick commands do without. What only this machine can be
asked has its shapes beside it, in `operations.here.replies`.
"""
