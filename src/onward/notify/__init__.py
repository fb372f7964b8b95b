"""Telling people and programs outside what happened to runs. Begin with `courier`.

What is to be told is in the store's outbox, written with the append that caused it. A courier claims what
is due, hands it to a `Sender` (`command` or `url`), and records what came of it.
"""
