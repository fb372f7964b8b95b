"""What an attempt has besides calls. Begin with `rooms`: its directory and artifacts.

`leftovers` and `previous_attempt` have what an earlier attempt left, `recall` the preamble. `effects` are
those outside steps (`onward effect`, `app.effect`) that run at most once per key; a step's own effects are
calls, in `engine/calls/`.
"""
