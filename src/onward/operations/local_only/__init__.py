"""Requests that only the machine can answer on which they are made. A server will not take these.

- `execute`: this process executes a run, its signals stop it, and the terminal answers its gates. A remote
  caller sends the same requests, and a worker executes the run.
- `files`: the files of a run and its receipts go into a directory of this machine.
- `collect`: with a run go its directory and its work tree, which are where it was executed.
- `verify`: logs are compared with the directories of their runs.
- `carry`: whole logs with all that they contain, for whoever may read and write the database itself.
- `effect`: a command is run here. Looking at effects and deciding about them is in `operations.protocol`.
- `doctor`: this installation, its files, and the database as it is reached from here.

Their `requests` and `replies` are values like all others, so that `--json` prints what a program can read.
"""
