"""An agent's step: `handler.py` asks a model until the step has a result, `contract.py` reads results from
answers, and `thread.py` keeps the conversation, so that a step that runs again continues it."""
