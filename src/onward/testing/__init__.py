"""For tests of your own pipelines and handlers: a clock, a model and a PostgreSQL server.

Begin with `fixtures`, for pytest, or with `clock` and
`scripted_model`. `model_endpoint` plays the same scripts over HTTP, and `postgres`
starts a temporary server; both are also programs (`python -m`). Only tests import this.
"""
