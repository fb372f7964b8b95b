"""Shell commands as steps: `handler.py` runs one, `environment.py` is what it knows about its step, and
`hooks.py` are the commands before and after it."""
