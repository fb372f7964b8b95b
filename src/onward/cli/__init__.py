"""The command line: it sends a request, prints the reply, and turns it into an exit code.

`main` imports the module of a command when the command is called, so that looking at runs never waits for the
code that executes them. A command `x` is a function `x` in a module of `commands/`, and a row of `COMMANDS`
in `main`. The rest serves all of them:

- `options`, `values`, `numbers`, `opening/`: flags, their values, and the database and app they name
- `signals`: Ctrl-C and its relatives
- `exits`, `failure`, `mistakes`: how a command ends
- `manual/`, `replies`: its examples and exit codes, and what it prints with `--json`
- `completion/`: completion in shells
- `print/`: what is printed
"""
