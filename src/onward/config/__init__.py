"""Settings and secrets: what flags, the environment and `onward.toml` say.

Begin with `settings`, which puts together what `environment` and `file` read. `known_secrets` is what must
not be stored or shown.
"""
