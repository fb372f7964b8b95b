"""An agent's step. Begin with `handler`: it asks a model until the step has a result.

`contract` says what the agent is told and reads results from answers, `conversation` keeps the messages, so
that a step that runs again continues them, and asks one request at a time; `rounds` decides what follows an
answer, and `tool_uses` uses the tools that it asks for.
"""
