"""Handlers: what a step does to the world. One file each; the protocol is in `port`."""
