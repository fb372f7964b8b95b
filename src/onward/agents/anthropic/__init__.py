"""Anthropic's messages. Begin with `format`; all of it is pure."""
