"""Requests that can be answered only on the machine where they are made. A server does not take them.

- `execute`: this process executes a run, its signals stop it, and the terminal answers its gates. A remote
  caller sends the same requests, and a worker executes the run.
- `submission`: a new run is described by files and directories of this machine.
- `directories`: the files of a run and its receipts go into a directory of this machine; what steps printed
  is in their directories, where they ran; logs are compared with the directories of their runs; and a run is
  deleted with its directory and work tree, which are where it was executed.
- `database`: this installation, its files, and the database as it is reached from here; and exports and
  imports of whole logs, for people who may read and write the database itself.
- `effect`: a command runs here. Requests that show or decide effects are in `operations.protocol`.

Their `requests` and `replies` are values like all others, so that `--json` prints what a program can read.
"""
