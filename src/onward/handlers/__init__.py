"""Handlers: what a step does to the world. Begin with `port`: what a handler gets, and what it promises.

A handler is a file or a package here (`shell`, `function`, `simulate`); the agent's is in `agents/step/`,
the manager's in `engine/managed/`. Two modules look alike: `calls` has recorded calls, as a handler makes
them; `plain` runs functions of users in threads and tasks, and knows which of them still run.
"""
