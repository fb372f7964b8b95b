"""Everything that a person or a program can ask of Onward: one typed request, one typed reply.

- `requests`: the values that are asked. The answers are in `onward.replies`.
- `protocol`: who answers, in small groups. Begin here.
- `local/`: answered by a store, or an engine, in this process. A server can answer all of these.
- `here/`: what makes sense only on the machine where it is asked; its docstring says why for each.

The command line keeps flags, printing, signals and the terminal.
"""
