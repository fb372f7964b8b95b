"""Telling people and programs outside what happened to runs. Begin with `courier`.

What is to be told is in the store's outbox, written with the append that caused it. A courier claims what is
due, hands it to a `Sender` (`senders` has a command and an address), and records what came of it.
"""
