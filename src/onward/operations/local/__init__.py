"""Requests answered in this process. Begin with `operations`, which has all of them.

- `lists`, `look`, `steps`, `effects`, `database`: need only a store.
- `submit`: new runs for the queue, by a store alone.
- `operations`, `chats`: need an engine, which executes nothing for them.

A quick command imports only the module that it needs: `lists` and `submit` must not import an engine.
"""
