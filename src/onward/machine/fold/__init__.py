"""What a log means: events in, a `Run` out.

Begin with `apply`, which has the table of all folds. `runs`, `steps` and `calls` say what each event
changes; `rows` derives what is stored beside the log, and `snapshot` is a fold as bytes.
"""
