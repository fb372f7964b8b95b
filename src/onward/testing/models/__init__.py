"""The parts of a scripted model. Begin with `script`; `wire` and its formats make bytes of it.

`ledger` keeps the requests.
"""
