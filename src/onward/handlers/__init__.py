"""Handlers: what a step does to the world. Begin with `port`: what a handler gets and promises.

A handler is a module here (`shell`, `function`, `simulate`); the agent's is in `agents/step/`, the manager's
in `engine/overseer.py`. What a step has and asks while it runs is in `room` and `calls`. Two modules look
alike: `calls` has recorded calls, as a handler makes them; `user_functions` runs functions of users in
threads and tasks, and knows which of them still run. `isolated_child` is a program of its own.
"""
