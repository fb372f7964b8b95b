"""Everything that a person or a program can ask of Onward: one typed request, one typed reply.

- `requests`, `replies`: the values. A reply is plain JSON values; `--json` prints it.
- `protocol`: who answers, in four small groups. Begin here.
- `local/`: answered by a store, or an engine, in this process.

The command line keeps flags, printing, and the execution of runs in the foreground.
"""
