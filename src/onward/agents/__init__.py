"""What an agent needs besides the log: models behind one port, their providers, keys and prices.

Begin with `model`, the port: what is asked of a model, what streams back, and how it fails. `models` finds
the client of a provider, `formats` what it speaks. Nothing here writes to a run's log or retries by itself:
whoever records calls does both.
"""
