"""What an agent needs besides the log: models, their providers and prices, tools, programs.

Begin with `model`, the port: what is asked of a model, what streams back, and how it fails. `models` finds
the client of a provider: `http` for the formats that we write and read ourselves (`openai`, `anthropic`,
`google`, on what they share in `wire`), `others` for the rest. `step/` and `programs/` are the handlers of
agent steps: a model answers, or a program works. `tools/` is what an agent may use. Nothing here writes to
a run's log or retries by itself: the handlers do both through the recorder of their step.
"""
