"""The command line: thin. It asks the engine, prints what it says, and turns it into an exit code.

`main` knows every command by name only and imports a command's module when it is called, so that looking at
runs never waits for what executes them. A command `x` is a function `x` in a module of `commands/`, and a
row of `COMMANDS` in `main`. The rest serves all of them:

- `options`, `values`, `numbers`, `opening`: what was asked for, and the database and app it is asked of
- `signals`: Ctrl-C and its relatives
- `exits`, `failure`: how a command ends
- `print/`: what is printed
"""
