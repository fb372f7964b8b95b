"""The command line: it sends a request, prints the reply, and turns it into an exit code.

`main` imports the module of a command when the command is called, so that looking at runs never waits for the
code that executes them. A command `x` is a function `x` in a module of `commands/`, and a row of `COMMANDS`
in `main`. The rest serves all of them:

- `words`, `options`: what was typed, the flags and their values
- `operations`: the database and the app that the flags name, and what a command asks of them
- `output`: where a command prints, and how it ends
- `signals`: Ctrl-C and its relatives
- `manual`, `replies`: the examples and exit codes of a command, and what it prints with `--json`
- `completion`: completion in shells
- `print/`: runs, steps and progress as text for a person
"""
