"""The port to models. Begin with `port`, then `request`, `stream` and `failure`; `retries` says what follows.

Everything here is a value or a pure function, so that it can be stored, hashed and compared.
"""
