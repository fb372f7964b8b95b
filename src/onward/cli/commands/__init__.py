"""The commands, a few that are alike in each module: flags, one call, printing.

- create or execute runs, here or in workers: `run`, `resume`, `chat`, `submit`, `workers`; `foreground` has
  what a run that is executed here needs
- look, and change nothing: `status` (a list, or one run), `show` (all that happened in one), `files`, `graph`
- decide about a run: `control`, and in `resume` what also continues it
- operate the database and the installation: `check`, `pipelines`, `limits`, `effect`, `storage`, `about`

`status`, `show`, `limits` and `control` know runs only as requests and replies: they would do the same with a
server. Only `foreground` and `workers` know the engine. `status` and `submit` must be quick, so they import
little.
"""
